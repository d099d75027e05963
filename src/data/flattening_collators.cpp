#include <gradus/core/error.h>
#include <gradus/data/collators.h>
#include <gradus/data/packing.h>

#include "data/column_collate.h"

#include <fmt/format.h>

#include <numeric>

namespace gradus {
namespace {

torch::Tensor one_row(const std::vector<int64_t>& values, at::ScalarType type = at::kLong) {
  return torch::tensor(values, at::kLong).to(type).unsqueeze(0);
}

torch::Tensor number(int64_t value) { return at::scalar_tensor(value, at::kLong); }

/// The labels, or the ids where rows have none.
data::IntLists labels_or_ids(const std::vector<Example>& rows) {
  std::vector<const Value*> values;
  for (const auto& row : rows) {
    const auto* labels = row.find("labels");
    values.push_back(labels != nullptr ? labels : &row.at("input_ids"));
  }
  return {values, "labels"};
}

void check_labels(const data::IntLists& ids, const data::IntLists& labels) {
  for (size_t row = 0; row < ids.size(); ++row) {
    if (ids[row].size() == labels[row].size()) continue;
    throw Error("G-DATA-7", ErrorKind::data,
                fmt::format("row {} of the batch has {} labels for {} tokens", row,
                            labels[row].size(), ids[row].size()),
                "There must be one label per token.");
  }
}

/// For each row, positions that restart at every sequence packed into it.
std::vector<std::vector<int64_t>> positions_of(const std::vector<Example>& rows,
                                               const data::IntLists& ids) {
  std::vector<std::vector<int64_t>> result;
  const bool packed = rows.front().contains("seq_lengths");
  for (size_t row = 0; row < rows.size(); ++row) {
    std::vector<int64_t> lengths{static_cast<int64_t>(ids[row].size())};
    if (packed) {
      const auto& value = rows[row].at("seq_lengths");
      const std::vector<const Value*> values{&value};
      const data::IntLists list(values, "seq_lengths");
      lengths.assign(list[0].begin(), list[0].end());
    }
    auto& positions = result.emplace_back();
    for (const int64_t length : lengths) {
      for (int64_t i = 0; i < length; ++i) positions.push_back(i);
    }
    if (positions.size() == ids[row].size()) continue;
    throw Error(
        "G-DATA-7", ErrorKind::data,
        fmt::format("row {} of the batch: seq_lengths have a sum of {}, the row has {} tokens", row,
                    positions.size(), ids[row].size()),
        "Pack the rows again with pack_dataset().");
  }
  return result;
}

template <class Lists>
std::vector<std::span<const int64_t>> views(const Lists& lists) {
  return {lists.begin(), lists.end()};
}

template <class Lists>
std::vector<int64_t> joined(const Lists& lists) {
  std::vector<int64_t> result;
  for (const auto& list : lists) result.insert(result.end(), list.begin(), list.end());
  return result;
}

}  // namespace

Batch DataCollatorWithFlattening::operator()(std::vector<Example> rows) const {
  if (rows.empty()) return {};
  const data::IntLists ids(rows, "input_ids");
  const data::IntLists labels(rows, rows.front().contains("labels") ? "labels" : "input_ids");
  std::vector<int64_t> all_labels;
  std::vector<int64_t> positions;
  std::vector<int64_t> sequences;
  std::vector<int64_t> bounds{0};
  int64_t longest = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto length = static_cast<int64_t>(ids[row].size());
    all_labels.push_back(options_.separator_id);
    if (labels[row].size() > 1)
      all_labels.insert(all_labels.end(), labels[row].begin() + 1, labels[row].end());
    for (int64_t i = 0; i < length; ++i) positions.push_back(options_.position_ids_start + i);
    sequences.insert(sequences.end(), static_cast<size_t>(length), static_cast<int64_t>(row));
    bounds.push_back(bounds.back() + length);
    longest = std::max(longest, length);
  }
  Batch batch{{"input_ids", one_row(joined(ids.lists()))}, {"labels", one_row(all_labels)}};
  if (options_.return_position_ids) batch.set("position_ids", one_row(positions));
  if (options_.return_seq_idx) batch.set("seq_idx", one_row(sequences, at::kInt));
  if (options_.return_flash_attn_kwargs) {
    const auto limits = torch::tensor(bounds, at::kLong).to(at::kInt);
    batch.set("cu_seq_lens_q", limits);
    batch.set("cu_seq_lens_k", limits);
    batch.set("max_length_q", number(longest));
    batch.set("max_length_k", number(longest));
  }
  return batch;
}

Batch DataCollatorForSft::operator()(std::vector<Example> rows) const {
  if (rows.empty()) return {};
  const data::IntLists ids(rows, "input_ids");
  const auto labels = labels_or_ids(rows);
  check_labels(ids, labels);
  const auto pad = [&](std::span<const std::span<const int64_t>> lists, int64_t value) {
    return pad_lists(lists, value, PaddingSide::right, options_.pad_to_multiple_of);
  };
  if (!options_.padding_free) {
    Batch batch{{"input_ids", pad(ids.lists(), options_.pad_token_id)},
                {"labels", pad(labels.lists(), -100)}};
    if (options_.return_position_ids)
      batch.set("position_ids", pad(views(positions_of(rows, ids)), 0));
    std::vector<std::vector<int64_t>> ones;
    for (const auto list : ids.lists()) ones.emplace_back(list.size(), 1);
    batch.set("attention_mask", pad(views(ones), 0));
    return batch;
  }
  const auto flat = [&](const std::vector<int64_t>& values, int64_t fill) {
    const std::span<const int64_t> list(values);
    return pad({&list, 1}, fill);
  };
  auto positions = flat(joined(positions_of(rows, ids)), 0);
  auto flat_labels = flat(joined(labels.lists()), -100).masked_fill(positions == 0, -100);
  const auto bounds = cu_seq_lens(positions);
  const auto longest = number(bounds.diff().max().item<int64_t>());
  return {{"input_ids", flat(joined(ids.lists()), options_.pad_token_id)},
          {"labels", std::move(flat_labels)},
          {"position_ids", std::move(positions)},
          {"cu_seq_lens_q", bounds},
          {"cu_seq_lens_k", bounds},
          {"max_length_q", longest},
          {"max_length_k", longest},
          {"seq_idx", seq_idx_from(bounds)}};
}

}  // namespace gradus
