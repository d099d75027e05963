#include "tasks/text_columns.h"

#include <fmt/format.h>
#include <gradus/core/error.h>

#include <algorithm>

namespace gradus::tasks {
namespace {

constexpr std::string_view kGlueNames[] = {"cola", "mnli", "mrpc", "qnli", "qqp",
                                           "rte",  "sst2", "stsb", "wnli"};

const std::vector<GlueTask>& glue_tasks() {
  static const std::vector<GlueTask> all = {
      {"cola", "sentence", nullptr, {"unacceptable", "acceptable"}, {"matthews_correlation"}},
      {"mnli", "premise", "hypothesis", {"entailment", "neutral", "contradiction"}, {"accuracy"}},
      {"mrpc", "sentence1", "sentence2", {"not_equivalent", "equivalent"}, {"accuracy", "f1"}},
      {"qnli", "question", "sentence", {"entailment", "not_entailment"}, {"accuracy"}},
      {"qqp", "question1", "question2", {"not_duplicate", "duplicate"}, {"accuracy", "f1"}},
      {"rte", "sentence1", "sentence2", {"entailment", "not_entailment"}, {"accuracy"}},
      {"sst2", "sentence", nullptr, {"negative", "positive"}, {"accuracy"}},
      {"stsb", "sentence1", "sentence2", {}, {"pearson", "spearmanr"}},
      {"wnli", "sentence1", "sentence2", {"not_entailment", "entailment"}, {"accuracy"}},
  };
  return all;
}

TextColumns chosen(const Split& split, const TextColumnFlags& flags) {
  if (flags.glue != nullptr)
    return {.first = {flags.glue->first},
            .second = flags.glue->second != nullptr ? std::optional<std::string>(flags.glue->second)
                                                    : std::nullopt};
  if (flags.names) return {.first = comma_list(flags.names), .delimiter = flags.delimiter};
  const auto names = split.column_names();
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has("sentence")) return {.first = {"sentence"}};
  if (has("sentence1") && has("sentence2")) return {.first = {"sentence1"}, .second = "sentence2"};
  std::vector<std::string> rest;
  for (const auto& name : names)
    if (std::find(flags.others.begin(), flags.others.end(), name) == flags.others.end())
      rest.push_back(name);
  if (rest.empty()) return {.first = {"sentence"}};
  return {.first = {rest[0]}, .second = rest.size() > 1 ? std::optional(rest[1]) : std::nullopt};
}

}  // namespace

const GlueTask* glue_task(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  for (const auto& each : glue_tasks())
    if (lower == each.name) return &each;
  return nullptr;
}

std::span<const std::string_view> glue_names() { return kGlueNames; }

std::string TextColumns::first_text(const Example& row, const std::string& where) const {
  auto text = text_of(row, first.front(), where);
  for (size_t i = 1; i < first.size(); ++i) text += delimiter + text_of(row, first[i], where);
  return text;
}

TextColumns text_columns(const Split& split, const TextColumnFlags& flags) {
  auto columns = chosen(split, flags);
  std::vector<ColumnNeed> needs;
  for (const auto& name : columns.first)
    needs.push_back({.name = name, .kinds = {ColumnKind::text}});
  if (columns.second) needs.push_back({.name = *columns.second, .kinds = {ColumnKind::text}});
  require_columns(*split.rows, needs, split.where);
  return columns;
}

std::vector<std::string> comma_list(const std::optional<std::string>& text) {
  std::vector<std::string> parts;
  if (!text || text->empty()) return parts;
  for (size_t begin = 0; begin <= text->size();) {
    const auto end = std::min(text->find(',', begin), text->size());
    parts.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace gradus::tasks
