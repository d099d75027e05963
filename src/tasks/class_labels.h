#pragma once

#include <nlohmann/json.hpp>
#include <set>

#include "tasks/text_data.h"

namespace gradus::tasks {

/// What the labels of a text classification say.
enum class Problem {
  regression,    ///< one number
  single_label,  ///< one of several classes
  multi_label,   ///< any number of classes
};
/// "single_label_classification": the words of config.json.
std::string problem_name(Problem problem);

/// A label as Python's `str` writes it: "3", "1.0", "True", "sports".
std::string label_text(const Value& value);

/// The classes by number, and how cells of the label column become targets.
struct ClassLabels {
  Problem problem = Problem::single_label;
  std::vector<std::string> names = {};

  /// What config.json is to say.
  nlohmann::json config_changes() const;
  /// The target of a cell: a float, a class number (the number -1 stays -1; where the classes are
  /// called LABEL_0, LABEL_1 … numbers are taken as they are), or a 0/1 list. `stored` are the
  /// names of a ClassLabel column: what the numbers in it mean. Throws G-TASK-11 for other types
  /// and for classes that are not among `names`.
  Value target(const Value& cell, const std::string& column, const std::string& where,
               const std::vector<std::string>& stored = {}) const;

 private:
  /// The name of `number` in `stored`, when it is one of `names`; else null.
  const std::string* stored_name(int64_t number, const std::vector<std::string>& stored) const;
  int64_t number_of(const std::string& label, const std::string& column,
                    const std::string& where) const;
};

/// Regression for a column of floats (or when asked), several labels for lists, else one.
Problem problem_of(const Split& split, const std::string& column, std::optional<bool> regression);
/// Every label of a column, as text. Throws G-TASK-11 for a row without, unless these are passed
/// over.
enum class MissingLabels { refuse, skip };
std::set<std::string> labels_in(const Split& split, const std::string& column,
                                MissingLabels missing = MissingLabels::refuse);
/// The names in id2label of a config.json, by number; empty when it has none.
std::vector<std::string> configured_names(const nlohmann::json& config);
/// Whether the names are others than LABEL_0, LABEL_1 …
bool are_own_names(const std::vector<std::string>& names);

}  // namespace gradus::tasks
