#pragma once

#include "tasks/text_data.h"

namespace gradus::tasks {

/// A task of the GLUE benchmark: which columns hold the text, what the labels are called, what is
/// measured.
struct GlueTask {
  const char* name;
  const char* first;
  const char* second;               ///< null: one text
  std::vector<std::string> labels;  ///< empty: regression
  std::vector<std::string> metrics;
};
/// Null for a name that is none.
const GlueTask* glue_task(const std::string& name);
std::span<const std::string_view> glue_names();

/// Which columns make up the one or two texts of a row.
struct TextColumns {
  std::vector<std::string> first;  ///< joined by `delimiter`
  std::optional<std::string> second = {};
  std::string delimiter = " ";

  std::string first_text(const Example& row, const std::string& where) const;
};

struct TextColumnFlags {
  const GlueTask* glue = nullptr;
  std::optional<std::string> names = {};  ///< a list parted by commas
  std::string delimiter = " ";
  std::vector<std::string> others = {};  ///< columns that are no text: the label, those removed
};
/// Named ones; else `sentence`; else `sentence1` and `sentence2`; else the first two, or the only
/// one, that is not among `others`. Throws G-SRC-6 and G-SRC-7.
TextColumns text_columns(const Split& split, const TextColumnFlags& flags);

/// "a,b" as its parts.
std::vector<std::string> comma_list(const std::optional<std::string>& text);

}  // namespace gradus::tasks
