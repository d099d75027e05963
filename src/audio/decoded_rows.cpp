#include <fmt/format.h>
#include <gradus/audio/audio_dataset.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace gradus {
namespace {

/// What became of a row.
struct DecodedRow {
  torch::Tensor samples;  ///< undefined when it is not kept in memory
  int64_t length = 0;
  std::exception_ptr failure;
};

class DecodedRowsImpl : public DecodedRows {
 public:
  DecodedRowsImpl(std::shared_ptr<const Dataset> rows, AudioDecodeOptions options)
      : rows_(std::move(rows)), options_(std::move(options)) {
    std::vector<DecodedRow> decoded(static_cast<size_t>(rows_->size()));
    decode_all(decoded);
    keep(std::move(decoded));
  }

  int64_t size() const override { return static_cast<int64_t>(kept_.size()); }
  int64_t length(int64_t index) const override { return clips_[static_cast<size_t>(index)].length; }
  int64_t skipped_rows() const override { return rows_->size() - size(); }
  std::vector<std::string> column_names() const override { return rows_->column_names(); }

  Example get(int64_t index) const override {
    const auto place = static_cast<size_t>(index);
    auto row = rows_->get(kept_.at(place));
    const auto& kept = clips_[place].samples;
    row.set(options_.audio_column, kept.defined() ? Value(kept) : Value(decode(row)));
    return row;
  }

 private:
  torch::Tensor decode(const Example& row) const {
    AudioOptions audio;
    audio.sampling_rate = options_.sampling_rate;
    return audio_of(row.at(options_.audio_column), {}, audio).samples;
  }

  void decode_all(std::vector<DecodedRow>& decoded) const {
    std::atomic<int64_t> next = 0, bytes = 0;
    const auto work = [&] {
      for (int64_t row = next++; row < rows_->size(); row = next++) {
        auto& target = decoded[static_cast<size_t>(row)];
        try {
          auto samples = decode(rows_->get(row));
          target.length = samples.numel();
          const auto size = samples.numel() * int64_t{sizeof(float)};
          if ((bytes += size) <= options_.memory_limit) target.samples = std::move(samples);
        } catch (...) {
          target.failure = std::current_exception();
        }
      }
    };
    const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
    const auto threads = std::clamp<int64_t>(
        options_.threads > 0 ? options_.threads : std::min<int64_t>(cores, 8), 1, 64);
    std::vector<std::jthread> others;
    for (int64_t i = 1; i < std::min(threads, rows_->size()); ++i) others.emplace_back(work);
    work();
  }

  void keep(std::vector<DecodedRow> decoded) {
    int64_t skipped = 0;
    for (size_t row = 0; row < decoded.size(); ++row) {
      if (!decoded[row].failure) {
        kept_.push_back(static_cast<int64_t>(row));
        clips_.push_back(std::move(decoded[row]));
        continue;
      }
      try {
        std::rethrow_exception(decoded[row].failure);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::usage) throw;
        if (++skipped > options_.skip_bad_rows)
          throw Error(error.id(), error.kind(), fmt::format("row {}: {}", row, error.message()),
                      error.advice());
        log_warning(fmt::format("Row {} is left out: {}", row, error.message()));
      }
    }
  }

  std::shared_ptr<const Dataset> rows_;
  AudioDecodeOptions options_;
  std::vector<int64_t> kept_;
  std::vector<DecodedRow> clips_;
};

}  // namespace

std::shared_ptr<DecodedRows> decode_rows(std::shared_ptr<const Dataset> rows,
                                         const AudioDecodeOptions& options) {
  return std::make_shared<DecodedRowsImpl>(std::move(rows), options);
}

}  // namespace gradus
