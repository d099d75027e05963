#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/data/packing.h>

#include "data/required.h"

#include "data/column_collate.h"
#include "data/index_check.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/repeat_interleave.h>
#include <fmt/format.h>

#include <deque>
#include <map>
#include <numeric>

namespace gradus {
namespace {

using Pieces = std::vector<PackedPiece>;

[[noreturn]] void throw_packing(const std::string& message, const std::string& advice) {
  throw Error("G-DATA-15", ErrorKind::data, message, advice);
}

void append_wrapped(std::span<const int64_t> lengths, int64_t first_row, int64_t seq_length,
                    std::vector<Pieces>& packed) {
  int64_t room = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (int64_t begin = 0; begin < lengths[i];) {
      if (room == 0) {
        packed.emplace_back();
        room = seq_length;
      }
      const int64_t count = std::min(room, lengths[i] - begin);
      packed.back().push_back({first_row + static_cast<int64_t>(i), begin, count});
      begin += count;
      room -= count;
    }
  }
}

Pieces fragments(std::span<const int64_t> lengths, int64_t first_row, int64_t seq_length,
                 bool split) {
  Pieces pieces;
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (int64_t begin = 0; begin < lengths[i]; begin += seq_length) {
      pieces.push_back(
          {first_row + static_cast<int64_t>(i), begin, std::min(seq_length, lengths[i] - begin)});
      if (!split) break;
    }
  }
  return pieces;
}

/// Best fit decreasing: each piece goes into the fullest bin that has room; of equally full ones
/// the oldest.
void append_best_fit(Pieces pieces, int64_t seq_length, std::vector<Pieces>& packed) {
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.length > b.length; });
  std::map<int64_t, std::deque<size_t>> bins_by_space;
  for (const auto& piece : pieces) {
    const auto fit = bins_by_space.lower_bound(piece.length);
    size_t bin = packed.size();
    int64_t space = seq_length;
    if (fit == bins_by_space.end()) {
      packed.emplace_back();
    } else {
      space = fit->first;
      bin = fit->second.front();
      fit->second.pop_front();
      if (fit->second.empty()) bins_by_space.erase(fit);
    }
    packed[bin].push_back(piece);
    if (space > piece.length) bins_by_space[space - piece.length].push_back(bin);
  }
}

class PackedDataset final : public Dataset {
 public:
  PackedDataset(std::shared_ptr<const Dataset> source, std::vector<Pieces> packed,
                bool with_lengths)
      : source_(std::move(source)), packed_(std::move(packed)), with_lengths_(with_lengths) {}

  int64_t size() const override { return static_cast<int64_t>(packed_.size()); }

  Example get(int64_t index) const override {
    data::check_index(index, size());
    const auto& pieces = packed_[static_cast<size_t>(index)];
    std::vector<int64_t> rows;
    for (const auto& piece : pieces) rows.push_back(piece.row);
    const auto sources = source_->get_many(rows);
    Example result;
    for (const auto& [name, value] : sources.front()) {
      const data::IntLists lists(sources, name);
      std::vector<int64_t> tokens;
      for (size_t i = 0; i < pieces.size(); ++i) {
        const auto part = lists[i].subspan(static_cast<size_t>(pieces[i].begin),
                                           static_cast<size_t>(pieces[i].length));
        tokens.insert(tokens.end(), part.begin(), part.end());
      }
      result.set(name, std::move(tokens));
    }
    if (with_lengths_) {
      std::vector<int64_t> lengths;
      for (const auto& piece : pieces) lengths.push_back(piece.length);
      result.set("seq_lengths", std::move(lengths));
    }
    return result;
  }

  std::vector<std::string> column_names() const override {
    auto names = source_->column_names();
    if (with_lengths_ && !names.empty()) names.emplace_back("seq_lengths");
    return names;
  }

 private:
  std::shared_ptr<const Dataset> source_;
  std::vector<Pieces> packed_;
  bool with_lengths_;
};

/// The length of the lists of a row, which must agree.
int64_t row_length(const Example& row, int64_t index) {
  std::optional<int64_t> length;
  for (const auto& [name, value] : row) {
    const bool list = value.is_ints() || (value.is_tensor() && value.tensor().dim() == 1);
    if (!list && !(value.is_floats() && value.floats().empty())) {
      throw_packing(
          fmt::format("row {} cannot be packed: column '{}' holds {}, expected a list of int",
                      index, name, value.type_name()),
          "Keep only the columns to be packed with select_columns().");
    }
    const auto here = value.is_ints()     ? static_cast<int64_t>(value.ints().size())
                      : value.is_tensor() ? value.tensor().size(0)
                                          : 0;
    if (length.value_or(here) != here) {
      throw_packing(
          fmt::format(
              "row {} cannot be packed: column '{}' has {} values, the columns before it {}", index,
              name, here, *length),
          "All columns of a row must be equally long.");
    }
    length = here;
  }
  return length.value_or(0);
}

}  // namespace

PackingStrategy packing_strategy(std::string_view name) {
  if (name == "bfd") return PackingStrategy::bfd;
  if (name == "bfd_split") return PackingStrategy::bfd_split;
  if (name == "wrapped") return PackingStrategy::wrapped;
  throw Error("G-DATA-15", ErrorKind::usage, fmt::format("'{}' is not a packing strategy", name),
              "Use bfd, bfd_split or wrapped.");
}

std::vector<std::vector<PackedPiece>> pack_lengths(std::span<const int64_t> lengths,
                                                   const PackingOptions& options) {
  if (options.seq_length < 1 || options.rows_at_once < 1) {
    throw_packing(fmt::format("packing with seq_length {} and rows_at_once {}", options.seq_length,
                              options.rows_at_once),
                  "Both are at least 1.");
  }
  std::vector<Pieces> packed;
  for (size_t first = 0; first < lengths.size();
       first += static_cast<size_t>(options.rows_at_once)) {
    const auto chunk = lengths.subspan(
        first, std::min(static_cast<size_t>(options.rows_at_once), lengths.size() - first));
    const auto row = static_cast<int64_t>(first);
    if (options.strategy == PackingStrategy::wrapped)
      append_wrapped(chunk, row, options.seq_length, packed);
    else
      append_best_fit(
          fragments(chunk, row, options.seq_length, options.strategy == PackingStrategy::bfd_split),
          options.seq_length, packed);
  }
  return packed;
}

std::shared_ptr<Dataset> pack_dataset(const std::shared_ptr<const Dataset>& dataset,
                                      PackingOptions options) {
  data::required(dataset, "pack_dataset");
  std::vector<int64_t> lengths;
  for (int64_t index = 0; index < dataset->size(); ++index)
    lengths.push_back(row_length(dataset->get(index), index));
  return std::make_shared<PackedDataset>(dataset, pack_lengths(lengths, options),
                                         options.strategy != PackingStrategy::wrapped);
}

torch::Tensor cu_seq_lens(const torch::Tensor& position_ids) {
  const auto flat = position_ids.flatten();
  const auto starts = (flat == 0).nonzero().flatten();
  return at::cat({starts, torch::tensor({flat.numel()}, starts.options())}).to(at::kInt);
}

torch::Tensor seq_idx_from(const torch::Tensor& cu_seq_lens) {
  const auto lengths = cu_seq_lens.diff().to(at::kLong);
  return at::repeat_interleave(at::arange(lengths.numel(), lengths.options().dtype(at::kInt)),
                               lengths)
      .unsqueeze(0);
}

torch::Tensor position_ids_from(const torch::Tensor& cu_seq_lens) {
  const auto bounds = cu_seq_lens.to(at::kLong);
  const auto starts = at::repeat_interleave(bounds.slice(0, 0, -1), bounds.diff());
  return (at::arange(starts.numel(), starts.options()) - starts).unsqueeze(0);
}

torch::Tensor block_diagonal_mask(const torch::Tensor& cu_seq_lens, bool causal) {
  const auto ids = seq_idx_from(cu_seq_lens).squeeze(0);
  auto mask = ids.unsqueeze(1) == ids.unsqueeze(0);
  if (causal) mask = mask.tril();
  return mask.unsqueeze(0).unsqueeze(0);
}

}  // namespace gradus
