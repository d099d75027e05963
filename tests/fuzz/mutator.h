#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace gradus::fuzz {

/// Damages files the way readers find hardest: lengths and offsets that lie, pieces moved, lost or
/// doubled. The same seed gives the same files.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  /// One to eight changes to one of the corpus' files.
  std::string next(const std::vector<std::string>& corpus) {
    auto bytes = corpus[below(corpus.size())];
    for (size_t changes = 1 + below(8); changes > 0; --changes) change(bytes, corpus);
    return bytes;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : size_t(random_() % limit); }

  void change(std::string& bytes, const std::vector<std::string>& corpus) {
    if (bytes.empty()) bytes = "\x80";
    const auto at = below(bytes.size());
    const auto count = 1 + below(std::min<size_t>(bytes.size() - at, 64));
    switch (below(9)) {
      case 0: bytes[at] = char(bytes[at] ^ (1 << below(8))); break;
      case 1: bytes[at] = char(random_()); break;
      case 2: number(bytes, at); break;
      case 3: bytes.erase(at, count); break;
      case 4: bytes.insert(at, bytes.substr(below(bytes.size()), count)); break;
      case 5: bytes.replace(at, count, bytes.substr(below(bytes.size()), count)); break;
      case 6: bytes.resize(below(8) == 0 ? at : bytes.size()); break;
      case 7: digit(bytes, at); break;
      default: splice(bytes, corpus[below(corpus.size())], at, count); break;
    }
  }

  /// An edge value of 1, 2, 4 or 8 bytes.
  void number(std::string& bytes, size_t at) {
    static constexpr std::array<uint64_t, 12> kEdges = {0,
                                                        1,
                                                        0x7F,
                                                        0x80,
                                                        0xFF,
                                                        0x7FFF,
                                                        0xFFFF,
                                                        0x7FFFFFFF,
                                                        0x80000000,
                                                        0xFFFFFFFF,
                                                        0x7FFFFFFFFFFFFFFF,
                                                        0xFFFFFFFFFFFFFFFF};
    const auto value = kEdges[below(kEdges.size())] + below(3) - 1;
    std::memcpy(bytes.data() + at, &value, std::min(bytes.size() - at, size_t{1} << below(4)));
  }

  /// Numbers in text: the next digit found becomes another one, or several.
  void digit(std::string& bytes, size_t at) {
    at = bytes.find_first_of("0123456789", at);
    if (at == std::string::npos) return;
    static constexpr std::array kTexts = {
        "0", "9", "-1", "18446744073709551615", "9223372036854775807", "1e9", "4294967296",
        "[", "]", "}"};
    bytes.replace(at, 1, kTexts[below(kTexts.size())]);
  }

  void splice(std::string& bytes, const std::string& other, size_t at, size_t count) {
    if (!other.empty()) bytes.replace(at, count, other.substr(below(other.size()), count));
  }

  std::mt19937_64 random_;
};

}  // namespace gradus::fuzz
