#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/formats/checksum.h>

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <memory>

#include "core/open_file.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradus {
namespace {

#if defined(__x86_64__)

constexpr size_t kFoldBytes = 64;

bool can_fold() {
  static const bool answer = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return answer;
}

/// Multiplies both halves of `value` by the powers of x in `factors` and adds `next`.
__attribute__((target("pclmul,sse4.1"))) __m128i fold(__m128i value, __m128i factors,
                                                      __m128i next) {
  const auto low = _mm_clmulepi64_si128(value, factors, 0x00);
  const auto high = _mm_clmulepi64_si128(value, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/// The checksum after `size` more bytes, a multiple of 64 and not 0. Four lanes of 16 bytes are
/// folded over the data; what is left has the same remainder as everything before it, so that zlib
/// can finish the last 16 bytes.
__attribute__((target("pclmul,sse4.1"))) uint32_t fold_blocks(uint32_t checksum,
                                                              const unsigned char* data,
                                                              size_t size) {
  const auto over_64_bytes =
      _mm_set_epi64x(0x1c6e41596, 0x154442bd4);  // x^(512±32) mod P, reflected
  const auto over_16_bytes =
      _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);  // x^(128±32) mod P, reflected
  const auto load = [](const unsigned char* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  __m128i lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = load(data + 16 * i);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(int(~checksum)));
  for (data += kFoldBytes, size -= kFoldBytes; size >= kFoldBytes;
       data += kFoldBytes, size -= kFoldBytes)
    for (int i = 0; i < 4; ++i) lanes[i] = fold(lanes[i], over_64_bytes, load(data + 16 * i));
  auto rest = lanes[0];
  for (int i = 1; i < 4; ++i) rest = fold(rest, over_16_bytes, lanes[i]);
  unsigned char last[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(last), rest);
  return uint32_t(::crc32_z(0xFFFFFFFFu, last, sizeof last));
}

#endif

}  // namespace

void Crc32::update(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (const size_t blocks = size / kFoldBytes * kFoldBytes; blocks > 0 && can_fold()) {
    value_ = fold_blocks(value_, bytes, blocks);
    bytes += blocks;
    size -= blocks;
  }
#endif
  if (size > 0) value_ = uint32_t(::crc32_z(value_, bytes, size));
}

void Crc32::append(uint32_t checksum, uint64_t size) {
  value_ = uint32_t(::crc32_combine(value_, checksum, z_off_t(size)));
}

uint32_t checksum_of(const void* data, size_t size) {
  Crc32 crc;
  crc.update(data, size);
  return crc.value();
}

WrittenFile file_checksum(const std::filesystem::path& file) {
  const int fd = open_for_reading(file);
  const auto fail = [&](int code) {
    ::close(fd);
    throw Error("G-IO-1", ErrorKind::io,
                "cannot read " + file.string() + ": " + system_reason(code),
                "Check that the path is right and may be read by this user.");
  };
  constexpr size_t kPiece = size_t{1} << 20;
  const auto buffer = std::make_unique_for_overwrite<char[]>(kPiece);
  Crc32 crc;
  uint64_t size = 0;
  for (;;) {
    const auto n = ::read(fd, buffer.get(), kPiece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    if (n == 0) break;
    crc.update(buffer.get(), size_t(n));
    size += uint64_t(n);
  }
  ::close(fd);
  return {size, crc.value()};
}

std::string checksum_text(uint32_t checksum) { return fmt::format("crc32:{:08x}", checksum); }

}  // namespace gradus
