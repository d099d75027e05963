#pragma once

#include <gradus/data/table_dataset.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace gradus {

/// How the ids of a token file are stored.
enum class TokenType { uint16, uint32 };

/// What is before the ids.
enum class TokenLayout {
  raw,     ///< nothing: nanoGPT
  llm_c,   ///< 256 int32: magic 20240520 version 1 (uint16) or 20240801 version 7 (uint32), count
  gradus,  ///< nothing, with an index file `NAME.idx` beside `NAME.bin` (docs/user/data.md)
};

/// A memory-mapped file of token ids.
///
/// Thread-safety: const after opening.
class TokenFile {
 public:
  /// Finds layout and type by itself: the index or header says it; a raw file is uint16 unless
  /// every second half-word of its start is tiny, or `type` is given. Throws G-SRC-12 for a header
  /// or length that does not fit, G-IO-1.
  explicit TokenFile(const std::filesystem::path& file,
                     std::optional<TokenType> type = std::nullopt);
  ~TokenFile();
  /// A file can be moved, not copied.
  TokenFile(TokenFile&&) noexcept;
  /// Closes the file that is replaced.
  TokenFile& operator=(TokenFile&&) noexcept;

  /// Which of the three formats it has.
  TokenLayout layout() const;
  /// The type of the stored ids.
  TokenType type() const;
  /// Ids in the file.
  int64_t size() const;
  /// The id at a position, which is not checked.
  uint32_t operator[](int64_t position) const;
  /// Ids [first, first + count) as int64. Throws G-SRC-17 outside of the file, G-SRC-11 when the
  /// file got shorter.
  Value::Ints read(int64_t first, int64_t count) const;

  /// Documents of the index; 0 when there is none.
  int64_t documents() const;
  /// Where document `index` begins; `document_start(documents())` is `size()`.
  int64_t document_start(int64_t index) const;
  /// The path of the file.
  const std::filesystem::path& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Options of `token_windows`.
struct TokenWindowOptions {
  int64_t block_size = 1024;  ///< Ids of a row.
  /// From one window's start to the next one's; default `block_size`, so that windows do not
  /// overlap.
  std::optional<int64_t> stride = {};
  /// False: labels are the input ids, as Hugging Face models expect them (they shift inside). True:
  /// labels are the ids one further on, as nanoGPT and llm.c feed them; a window then needs one id
  /// more.
  bool shifted_labels = false;
  /// Ids at or above it are an error that names the place. Nothing: not checked.
  std::optional<int64_t> vocab_size = {};
  /// The width of the ids; detected when it is not set.
  std::optional<TokenType> type = {};
};

/// Rows {"input_ids", "labels"} of `block_size` ids; ids after the last full window are left out.
/// Several files follow each other; no window spans two. Throws G-SRC-3 when there is no full
/// window; reading a row throws G-SRC-13 for an id outside the vocabulary.
std::shared_ptr<TableDataset> token_windows(const std::vector<std::filesystem::path>& files,
                                            const TokenWindowOptions& options);
/// The same for one file.
std::shared_ptr<TableDataset> token_windows(const std::filesystem::path& file,
                                            const TokenWindowOptions& options);

/// Rows {"input_ids"}, one per document of a file with an index. Throws G-SRC-12 when there is
/// none.
std::shared_ptr<TableDataset> token_documents(const std::filesystem::path& file,
                                              std::optional<int64_t> vocab_size = std::nullopt);

}  // namespace gradus
