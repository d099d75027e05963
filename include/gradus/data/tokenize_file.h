#pragma once

#include <gradus/data/load_dataset.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradus {

/// Ids of each text; called from several threads at once.
using TokenizeFunction =
    std::function<std::vector<std::vector<uint32_t>>(std::span<const std::string>)>;

/// Options of `tokenize_files`.
struct TokenizeOptions {
  /// How the input is read.
  LoadOptions load = {};
  /// The column that holds the text.
  std::string text_column = "text";
  /// Put after every document when given.
  std::optional<uint32_t> eos_token_id = {};
  /// Decides the width: uint16 up to 65,536, else uint32. An id at or above it is an error.
  int64_t vocab_size = 0;
  /// Stands for the tokenizer: a run started with another one is not continued.
  std::string tokenizer_key = {};
  /// Texts per call.
  int64_t batch_size = 256;
  /// 0: one per core.
  int64_t threads = 0;
  /// Start again even if there is an unfinished run.
  bool overwrite = false;
  /// Called now and then from the calling thread; documents and tokens so far, share of the input
  /// in 0..1 where known.
  std::function<void(int64_t documents, int64_t tokens, std::optional<double> share)> progress = {};
  /// Asked between batches; true: put everything safely away and return with `finished == false`.
  std::function<bool()> stop = {};
};

/// What `tokenize_files` wrote.
struct TokenizeResult {
  std::filesystem::path tokens_file;  ///< PREFIX.bin
  std::filesystem::path index_file;   ///< PREFIX.idx
  /// Documents written.
  int64_t documents = 0;
  /// Tokens written.
  int64_t tokens = 0;
  int64_t resumed_documents = 0;  ///< of these, taken over from an earlier run
  /// False when it was interrupted.
  bool finished = true;
};

/// Turns text files into `PREFIX.bin` (ids only: nanoGPT reads it too) and `PREFIX.idx` (where
/// documents begin).
///
/// A run that was interrupted, also by a power cut, leaves `PREFIX.bin.part`, `PREFIX.idx.part` and
/// `PREFIX.progress.json`; the same call continues from there, and the result is the same, byte for
/// byte. Throws G-SRC-6 for a missing column, G-SRC-13 for an id outside the vocabulary, G-SRC-16
/// when an unfinished run with other input or options is in the way.
TokenizeResult tokenize_files(const DataFiles& files, const std::filesystem::path& prefix,
                              const TokenizeFunction& tokenize, const TokenizeOptions& options);

}  // namespace gradus
