#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gradus::sources {

/// The head of `NAME.idx`, all little-endian:
///
///     bytes 0–7    "GRADIDX1"
///     bytes 8–11   width of an id in NAME.bin: 2 or 4
///     bytes 12–15  0
///     bytes 16–23  documents D
///     bytes 24–31  ids T
///     then D + 1 numbers of 8 bytes: where each document begins, and T
struct TokenIndexHead {
  int64_t width = 2;
  int64_t documents = 0;
  int64_t tokens = 0;
};

inline constexpr int64_t kTokenIndexHeadBytes = 32;

/// Reads the head and checks it against the length and the last entry. Throws G-SRC-12.
TokenIndexHead read_token_index(const char* data, int64_t size, const std::filesystem::path& file);
/// Entry `index` of a sound index.
int64_t token_index_entry(const char* data, int64_t index);
/// The head as bytes.
std::string pack_token_index_head(const TokenIndexHead& head);

}  // namespace gradus::sources
