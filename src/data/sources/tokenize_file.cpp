#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/tokenize_file.h>

#include <chrono>

#include "core/append_file.h"
#include "data/sources/ordered_jobs.h"
#include "data/sources/source_errors.h"
#include "data/sources/source_files.h"
#include "data/sources/token_index.h"

namespace gradus {
namespace fs = std::filesystem;
namespace sources {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

fs::path with_suffix(const fs::path& prefix, const char* suffix) {
  return prefix.string() + suffix;
}

// Everything the result depends on; a run is continued only with the same.
json signature_of(const std::vector<SourceFile>& files, const TokenizeOptions& options) {
  auto inputs = json::array();
  for (const auto& file : files)
    inputs.push_back({{"path", file.path.string()}, {"bytes", int64_t(fs::file_size(file.path))}});
  const auto& load = options.load;
  return {{"files", inputs},
          {"text_column", options.text_column},
          {"eos_token_id", options.eos_token_id ? json(*options.eos_token_id) : json()},
          {"vocab_size", options.vocab_size},
          {"tokenizer", options.tokenizer_key},
          {"field", load.field ? json(*load.field) : json()},
          {"text_unit", int(load.text_unit)},
          {"keep_linebreaks", load.keep_linebreaks},
          {"skip_bad_rows", load.skip_bad_rows},
          {"format", load.format}};
}

struct Progress {
  int64_t documents = 0;
  int64_t tokens = 0;
  json source;  // of the stream; null: from the start
};

// The share of the input's bytes that lie before a stream's state, where the state speaks of bytes.
std::optional<double> share_done(const std::vector<SourceFile>& files, const json& state) {
  if (!state.is_object() || !state.contains("file")) {
    if (state.is_object() && state.value("rows", int64_t{0}) > 0)
      return double(state.value("row", int64_t{0})) / double(state["rows"].get<int64_t>());
    return std::nullopt;
  }
  double total = 0, done = 0;
  const auto current = state["file"].get<size_t>();
  for (size_t i = 0; i < files.size(); ++i) {
    const auto bytes = double(fs::file_size(files[i].path));
    total += bytes;
    if (i < current) done += bytes;
  }
  if (const auto& at = state["at"]; current < files.size() && at.is_object()) {
    if (!at.contains("offset") || files[current].compression != Compression::none)
      return std::nullopt;
    done += at["offset"].get<double>();
  }
  return total > 0 ? done / total : 1.0;
}

class Tokenizing {
 public:
  Tokenizing(const DataFiles& files, const fs::path& prefix, const TokenizeFunction& tokenize,
             const TokenizeOptions& options)
      : prefix_(prefix),
        tokenize_(tokenize),
        options_(options),
        load_(options.load),
        files_(resolve_files(files, options.load)),
        signature_(signature_of(files_, options)),
        width_(options.vocab_size > 0 && options.vocab_size <= 65536 ? 2 : 4) {
    load_.columns = {options.text_column};
    stream_ = stream_dataset(files, load_);
    if (prefix.has_parent_path()) make_directory(prefix.parent_path());
    find_earlier_run();
    ids_ = std::make_unique<AppendFile>(with_suffix(prefix_, ".bin.part"), done_.tokens * width_);
    index_ = std::make_unique<AppendFile>(with_suffix(prefix_, ".idx.part"),
                                          kTokenIndexHeadBytes + done_.documents * 8);
  }

  TokenizeResult run() {
    TokenizeResult result{.tokens_file = with_suffix(prefix_, ".bin"),
                          .index_file = with_suffix(prefix_, ".idx"),
                          .resumed_documents = done_.documents};
    bool stopped = false;
    try {
      run_in_order(options_.threads > 0 ? options_.threads : thread_count(0),
                   [&]() -> std::optional<OrderedJob> {
                     stopped = options_.stop && options_.stop();
                     return stopped ? std::nullopt : next_batch();
                   });
    } catch (...) {
      save_progress();  // what was finished before stays
      throw;
    }
    if (stopped)
      save_progress();
    else
      publish();
    result.documents = done_.documents;
    result.tokens = done_.tokens;
    result.finished = !stopped;
    return result;
  }

 private:
  void find_earlier_run() {
    const auto file = with_suffix(prefix_, ".progress.json");
    if (options_.overwrite || !fs::exists(file)) return;
    const auto saved = read_json(file);
    const auto is_count = [&](const char* key) {
      return saved.contains(key) && saved[key].is_number_unsigned();
    };
    if (!saved.is_object() || !saved.contains("signature") || !saved.contains("source") ||
        !is_count("documents") || !is_count("tokens"))
      throw Error("G-SRC-16", ErrorKind::data,
                  fmt::format("{} is damaged: it does not say how far the unfinished run got",
                              file.string()),
                  "Use --overwrite to start again, or choose another output.");
    if (saved["signature"] != signature_ && saved["documents"] == 0)
      return;  // nothing would be lost
    if (saved["signature"] != signature_)
      throw Error(
          "G-SRC-16", ErrorKind::usage,
          fmt::format("{} belongs to an unfinished run with other input or options", file.string()),
          "Repeat the earlier command to continue, use --overwrite to start again, or choose "
          "another output.");
    Progress progress{saved.at("documents").get<int64_t>(), saved.at("tokens").get<int64_t>(),
                      saved.at("source")};
    const auto has = [](const fs::path& path, int64_t bytes) {
      return fs::exists(path) && int64_t(fs::file_size(path)) >= bytes;
    };
    if (!has(with_suffix(prefix_, ".bin.part"), progress.tokens * width_) ||
        !has(with_suffix(prefix_, ".idx.part"), kTokenIndexHeadBytes + progress.documents * 8)) {
      log_warning(fmt::format("{} is ahead of its .part files; starting again", file.string()));
      return;
    }
    if (!progress.source.is_null()) stream_->load_state(progress.source);
    done_ = std::move(progress);
  }

  std::optional<OrderedJob> next_batch() {
    struct Batch {
      std::vector<std::string> texts;
      std::vector<std::vector<uint32_t>> ids;
      json source;
    };
    auto batch = std::make_shared<Batch>();
    while (int64_t(batch->texts.size()) < options_.batch_size) {
      const auto row = stream_->next();
      if (!row) break;
      const auto& value = row->at(options_.text_column);
      if (!value.is_string())
        throw Error(
            "G-SRC-7", ErrorKind::data,
            fmt::format("row {} of {}: column \"{}\" is {}; expected text", with_commas(read_),
                        files_.front().path.string(), options_.text_column, value.type_name()),
            "Name the column that holds the text with --text_column, or repair the row.");
      batch->texts.push_back(value.str());
      ++read_;
    }
    if (batch->texts.empty()) return std::nullopt;
    batch->source = stream_->save_state();
    return OrderedJob{[this, batch] {
                        batch->ids = tokenize_(batch->texts);
                        if (batch->ids.size() != batch->texts.size())
                          throw Error("G-SRC-7", ErrorKind::internal,
                                      fmt::format("the tokenizer returned {} results for {} texts",
                                                  batch->ids.size(), batch->texts.size()));
                      },
                      [this, batch] { put(batch->ids, std::move(batch->source)); }};
  }

  void put(const std::vector<std::vector<uint32_t>>& documents, json source) {
    std::string ids, starts;
    auto tokens = done_.tokens;
    const auto put_id = [&](uint32_t id) {
      if (options_.vocab_size > 0 && id >= options_.vocab_size)
        throw Error("G-SRC-13", ErrorKind::data,
                    fmt::format("id {} at position {} is outside the vocabulary of {}", id,
                                with_commas(tokens), with_commas(options_.vocab_size)),
                    "vocab_size must include added tokens.");
      ids.append(reinterpret_cast<const char*>(&id),
                 size_t(width_));  // little-endian: the low bytes come first
      ++tokens;
    };
    for (const auto& document : documents) {
      starts.append(reinterpret_cast<const char*>(&tokens), sizeof tokens);
      for (const auto id : document) put_id(id);
      if (options_.eos_token_id) put_id(*options_.eos_token_id);
    }
    ids_->append(ids);
    index_->append(starts);
    done_ = {done_.documents + int64_t(documents.size()), tokens, std::move(source)};
    if (Clock::now() - saved_ > std::chrono::seconds(2)) save_progress();
  }

  void save_progress() {
    ids_->sync();
    index_->sync();
    const json progress = {{"version", 1},
                           {"signature", signature_},
                           {"documents", done_.documents},
                           {"tokens", done_.tokens},
                           {"source", done_.source}};
    write_file_atomically(with_suffix(prefix_, ".progress.json"), dump_json(progress, 2) + "\n");
    saved_ = Clock::now();
    if (options_.progress)
      options_.progress(done_.documents, done_.tokens, share_done(files_, done_.source));
  }

  void publish() {
    index_->append({reinterpret_cast<const char*>(&done_.tokens), sizeof done_.tokens});
    index_->overwrite(pack_token_index_head(
        {.width = width_, .documents = done_.documents, .tokens = done_.tokens}));
    ids_->sync();
    index_->sync();
    std::error_code ignored;
    fs::remove(with_suffix(prefix_, ".idx"),
               ignored);  // an index of an older file must not describe the new one
    fs::rename(with_suffix(prefix_, ".bin.part"), with_suffix(prefix_, ".bin"));
    fs::rename(with_suffix(prefix_, ".idx.part"), with_suffix(prefix_, ".idx"));
    fs::remove(with_suffix(prefix_, ".progress.json"), ignored);
    sync_path(prefix_.has_parent_path() ? prefix_.parent_path() : fs::path("."));
    if (options_.progress) options_.progress(done_.documents, done_.tokens, 1.0);
  }

  fs::path prefix_;
  const TokenizeFunction& tokenize_;
  const TokenizeOptions& options_;
  LoadOptions load_;
  std::vector<SourceFile> files_;
  json signature_;
  int64_t width_;
  std::shared_ptr<IterableDataset> stream_;
  std::unique_ptr<AppendFile> ids_, index_;
  Progress done_;
  int64_t read_ = 0;
  Clock::time_point saved_ = Clock::now();
};

}  // namespace
}  // namespace sources

TokenizeResult tokenize_files(const DataFiles& files, const fs::path& prefix,
                              const TokenizeFunction& tokenize, const TokenizeOptions& options) {
  return sources::Tokenizing(files, prefix, tokenize, options).run();
}

}  // namespace gradus
