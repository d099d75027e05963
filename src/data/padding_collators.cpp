#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>

#include "data/column_collate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <unordered_set>

namespace gradus {
namespace {

template <class Options>
Options checked(Options options) {
  if (!options.tokenizer)
    throw Error("G-DATA-13", ErrorKind::usage, "a collator that pads was made without a tokenizer",
                "Set .tokenizer in its options.");
  return options;
}

template <class Options>
PaddingOptions padding_of(const Options& options) {
  return {.padding = options.padding,
          .max_length = options.max_length,
          .pad_to_multiple_of = options.pad_to_multiple_of};
}

std::string label_name(const std::vector<Example>& rows) {
  return rows.front().contains("label") ? "label" : "labels";
}

std::vector<Example> without(const std::vector<Example>& rows, std::string_view name) {
  auto result = rows;
  for (auto& row : result) row.erase(name);
  return result;
}

void rename(Batch& batch, std::string_view from) {
  if (auto value = batch.pop_or_undefined(from); value.defined())
    batch.set("labels", std::move(value));
}

/// Labels are not cut: those beyond `max_length` are refused, unless all are equally long.
void check_label_lengths(const data::IntLists& labels, int64_t max_length, int64_t multiple) {
  const auto width = static_cast<size_t>((max_length + multiple - 1) / multiple * multiple);
  for (size_t row = 0; row < labels.size(); ++row) {
    if (std::max(width, labels[row].size()) == std::max(width, labels[0].size())) continue;
    throw Error("G-DATA-7", ErrorKind::data,
                fmt::format("row {} of the batch has {} labels, which are padded to {}", row,
                            std::max(labels[row].size(), labels[0].size()), width),
                "Labels longer than max_length are not cut here: truncate them when you tokenize.");
  }
}

/// Choice `number` of a column that holds one value per choice.
Value choice(const Value& value, size_t number, std::string_view name) {
  if (value.is_tensor() && value.tensor().dim() > 0)
    return value.tensor()[static_cast<int64_t>(number)];
  if (value.is_ints()) return value.ints().at(number);
  if (value.is_floats()) return value.floats().at(number);
  if (value.is_strings()) return value.strings().at(number);
  if (value.is_nested() && value.json().is_array()) {
    const auto& item = value.json().at(number);
    const bool all_ints =
        item.is_array() && std::all_of(item.begin(), item.end(), [](const auto& number) {
          return number.is_number_integer() || number.is_boolean();
        });
    return all_ints ? Value(item.get<std::vector<int64_t>>()) : Value::nested(item);
  }
  throw Error(
      "G-DATA-6", ErrorKind::data,
      fmt::format("column '{}' holds {}, expected one list per choice", name, value.type_name()),
      "A multiple-choice row has a list of lists in every column but the label.");
}

size_t count_choices(const Value& value) {
  if (value.is_tensor() && value.tensor().dim() > 0)
    return static_cast<size_t>(value.tensor().size(0));
  return value.is_nested() ? value.json().size() : value.is_ints() ? value.ints().size() : 0;
}

}  // namespace

DataCollatorWithPadding::DataCollatorWithPadding(DataCollatorWithPaddingOptions options)
    : options_(checked(std::move(options))) {}

Batch DataCollatorWithPadding::operator()(std::vector<Example> rows) const {
  auto batch = pad_rows(rows, *options_.tokenizer, padding_of(options_));
  rename(batch, "label");
  rename(batch, "label_ids");
  return batch;
}

DataCollatorForTokenClassification::DataCollatorForTokenClassification(
    DataCollatorForTokenClassificationOptions options)
    : options_(checked(std::move(options))) {}

Batch DataCollatorForTokenClassification::operator()(std::vector<Example> rows) const {
  if (rows.empty()) return {};
  const auto name = label_name(rows);
  if (!rows.front().contains(name))
    return pad_rows(rows, *options_.tokenizer, padding_of(options_));
  auto batch = pad_rows(without(rows, name), *options_.tokenizer, padding_of(options_));
  const data::IntLists labels(rows, name);
  const int64_t width = batch["input_ids"].size(1);
  auto padded = pad_lists(labels.lists(), options_.label_pad_token_id,
                          options_.tokenizer->padding_side(), std::nullopt, width);
  if (padded.size(1) != width) {
    throw Error("G-DATA-7", ErrorKind::data,
                fmt::format("column '{}' has rows of {} values, the input is {} tokens wide", name,
                            padded.size(1), width),
                "There must be one label per token: align them when you tokenize.");
  }
  batch.set(name, std::move(padded));
  return batch;
}

DataCollatorForMultipleChoice::DataCollatorForMultipleChoice(DataCollatorWithPaddingOptions options)
    : options_(checked(std::move(options))) {}

Batch DataCollatorForMultipleChoice::operator()(std::vector<Example> rows) const {
  if (rows.empty()) return {};
  const auto name = label_name(rows);
  const size_t choices = count_choices(rows.front().at("input_ids"));
  std::vector<Example> flat;
  std::vector<int64_t> labels;
  for (const auto& row : rows) {
    const auto& label = row.at(name);
    labels.push_back(label.is_tensor() ? label.tensor().item<int64_t>() : label.integer());
    if (count_choices(row.at("input_ids")) != choices) {
      throw Error("G-DATA-7", ErrorKind::data,
                  fmt::format("row {} of the batch has {} choices, the first row {}",
                              labels.size() - 1, count_choices(row.at("input_ids")), choices),
                  "All rows need the same number of choices.");
    }
    for (size_t number = 0; number < choices; ++number) {
      Example one;
      for (const auto& [column, value] : row) {
        if (column != name) one.set(column, choice(value, number, column));
      }
      flat.push_back(std::move(one));
    }
  }
  auto batch = pad_rows(flat, *options_.tokenizer, padding_of(options_));
  for (auto& [column, value] : batch)
    value = value.view({static_cast<int64_t>(rows.size()), static_cast<int64_t>(choices), -1});
  batch.set("labels", torch::tensor(labels, at::kLong));
  return batch;
}

DataCollatorForSeq2Seq::DataCollatorForSeq2Seq(DataCollatorForSeq2SeqOptions options)
    : options_(checked(std::move(options))) {}

Batch DataCollatorForSeq2Seq::operator()(std::vector<Example> rows) const {
  if (rows.empty()) return {};
  const auto name = label_name(rows);
  const bool has_labels = rows.front().contains(name) &&
                          !std::all_of(rows.begin(), rows.end(),
                                       [&](const Example& row) { return row.at(name).is_null(); });
  auto batch = pad_rows(without(rows, name), *options_.tokenizer, padding_of(options_));
  if (!has_labels) return batch;
  const data::IntLists labels(rows, name);
  if (options_.padding == PaddingStrategy::do_not_pad) {
    batch.set("labels", data::collate_column(rows, name).to(at::kLong));
  } else {
    const bool to_max = options_.padding == PaddingStrategy::max_length && options_.max_length;
    if (to_max)
      check_label_lengths(labels, *options_.max_length, options_.pad_to_multiple_of.value_or(1));
    auto padded =
        pad_lists(labels.lists(), options_.label_pad_token_id, options_.tokenizer->padding_side(),
                  options_.pad_to_multiple_of, to_max ? *options_.max_length : 0);
    batch.set("labels", std::move(padded));
  }
  if (options_.prepare_decoder_input_ids)
    batch.set("decoder_input_ids", options_.prepare_decoder_input_ids(batch["labels"]));
  return batch;
}

struct RemoveColumnsCollator::State {
  DataCollator collator;
  std::unordered_set<std::string> columns;
  std::string model_name;
  std::string description;
  std::atomic<bool> said = false;
};

RemoveColumnsCollator::RemoveColumnsCollator(RemoveColumnsOptions options)
    : state_(std::make_shared<State>()) {
  state_->collator =
      options.collator ? std::move(options.collator) : DataCollator(default_data_collator);
  state_->columns.insert(options.columns.begin(), options.columns.end());
  state_->model_name = std::move(options.model_name);
  state_->description = std::move(options.description);
}

Batch RemoveColumnsCollator::operator()(std::vector<Example> rows) const {
  std::vector<std::string> ignored;
  for (auto& row : rows) {
    for (const auto& name : row.names()) {
      if (state_->columns.contains(name)) continue;
      row.erase(name);
      if (&row == &rows.front()) ignored.push_back(name);
    }
  }
  if (!ignored.empty() && !state_->model_name.empty() && !state_->said.exchange(true)) {
    const auto where = state_->description.empty()
                           ? std::string()
                           : fmt::format("in the {} set ", state_->description);
    log_info(fmt::format(
        "The following columns {}don't have a corresponding argument in `{}.forward` and have been "
        "ignored: {}. If {} are not expected by `{}.forward`, you can safely ignore this message.",
        where, state_->model_name, fmt::join(ignored, ", "), fmt::join(ignored, ", "),
        state_->model_name));
  }
  return state_->collator(std::move(rows));
}

}  // namespace gradus
