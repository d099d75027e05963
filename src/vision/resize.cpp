#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/vision/transforms.h>

#include <ATen/ops/empty.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

namespace gradus {
namespace {

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double box_weight(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double bilinear_weight(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

double hamming_weight(double x) {
  x = std::abs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x *= std::numbers::pi;
  return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
}

double bicubic_weight(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double lanczos_weight(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

struct FilterShape {
  double (*weight)(double);
  double support;  ///< The weight is 0 beyond.
};

FilterShape shape_of(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::lanczos: return {lanczos_weight, 3.0};
    case ResizeFilter::bicubic: return {bicubic_weight, 2.0};
    case ResizeFilter::box: return {box_weight, 0.5};
    case ResizeFilter::hamming: return {hamming_weight, 1.0};
    default: return {bilinear_weight, 1.0};
  }
}

/// Weights are whole numbers of 2^-22: sums of 8-bit pixels then fit into 32 bits.
constexpr int kWeightBits = 22;

/// Which input pixels an output pixel is made of, along one side.
struct Taps {
  struct Run {
    int64_t first = 0, count = 0;
  };
  std::vector<Run> runs;         ///< Of each output pixel.
  std::vector<int32_t> weights;  ///< `room` of them for each.
  int64_t room = 0;
};

Taps make_taps(int64_t in, double begin, double end, int64_t out, ResizeFilter filter) {
  const auto shape = shape_of(filter);
  const double scale = (end - begin) / double(out), stretch = std::max(scale, 1.0);
  const double support = shape.support * stretch;
  Taps taps;
  taps.room = int64_t(std::ceil(support)) * 2 + 1;
  taps.runs.resize(size_t(out));
  taps.weights.resize(size_t(out * taps.room));
  std::vector<double> exact(static_cast<size_t>(taps.room));
  for (int64_t i = 0; i < out; ++i) {
    const double center = begin + (double(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, int64_t(center - support + 0.5));
    const auto count = std::min(in, int64_t(center + support + 0.5)) - first;
    double sum = 0;
    for (int64_t k = 0; k < count; ++k)
      sum += exact[size_t(k)] = shape.weight((double(k + first) - center + 0.5) * (1.0 / stretch));
    auto* weights = taps.weights.data() + i * taps.room;
    for (int64_t k = 0; k < count; ++k) {
      const double share = (sum != 0.0 ? exact[size_t(k)] / sum : exact[size_t(k)]);
      weights[k] = int32_t((share < 0 ? -0.5 : 0.5) + share * (1 << kWeightBits));
    }
    taps.runs[size_t(i)] = {first, count};
  }
  return taps;
}

uint8_t rounded(int32_t sum) { return uint8_t(std::clamp(sum >> kWeightBits, 0, 255)); }

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

/// Inlined into functions that are compiled for newer processors, too.
#define GRADUS_ALWAYS_INLINE inline __attribute__((always_inline))

/// One row, from `from` with pixels of three bytes. The three colours are summed side by side.
GRADUS_ALWAYS_INLINE void resize_row(const uint8_t* from, const Taps& taps, uint8_t* to) {
  using Sums = int32_t __attribute__((vector_size(16)));
  using Pixel = uint8_t __attribute__((vector_size(4)));
  const auto* weights = taps.weights.data();
  for (const auto& run : taps.runs) {
    const auto* place = from + run.first * 3;
    Sums sums = {kHalf, kHalf, kHalf, 0};
    Pixel pixel;
    for (int64_t k = 0; k + 1 < run.count; ++k, place += 3) {
      std::memcpy(&pixel, place, 4);
      sums += __builtin_convertvector(pixel, Sums) * weights[k];
    }
    if (run.count > 0) {
      std::memcpy(&pixel, place, 3);  // behind it the image may end
      pixel[3] = 0;
      sums += __builtin_convertvector(pixel, Sums) * weights[run.count - 1];
    }
    for (int c = 0; c < 3; ++c) to[c] = rounded(sums[c]);
    to += 3;
    weights += taps.room;
  }
}

/// One output row from several input rows that lie `stride` apart.
GRADUS_ALWAYS_INLINE void blend_rows(const uint8_t* from, int64_t stride, int64_t bytes,
                                     const int32_t* weights, int64_t count, uint8_t* to) {
  using Sums = int32_t __attribute__((vector_size(32)));
  using Pixels = uint8_t __attribute__((vector_size(8)));
  constexpr int64_t kParts = 4, kBlock = kParts * 8;  // sums that stay in registers
  int64_t i = 0;
  for (; i + kBlock <= bytes; i += kBlock) {
    Sums sums[kParts] = {};
    const auto* place = from + i;
    for (int64_t k = 0; k < count; ++k, place += stride) {
      for (int64_t part = 0; part < kParts; ++part) {
        Pixels pixels;
        std::memcpy(&pixels, place + 8 * part, 8);
        sums[part] += __builtin_convertvector(pixels, Sums) * weights[k];
      }
    }
    for (int64_t part = 0; part < kParts; ++part) {
      auto values = (sums[part] + kHalf) >> kWeightBits;
      values = values < 0 ? values - values : values;
      values = values > 255 ? values - values + 255 : values;
      const auto pixels = __builtin_convertvector(values, Pixels);
      std::memcpy(to + i + 8 * part, &pixels, 8);
    }
  }
  for (; i < bytes; ++i) {
    int32_t sum = kHalf;
    for (int64_t k = 0; k < count; ++k) sum += from[k * stride + i] * weights[k];
    to[i] = rounded(sum);
  }
}

/// Rows `first` to `last` of an image, made narrower or wider.
GRADUS_ALWAYS_INLINE void rows_across(const uint8_t* from, int64_t stride, int64_t rows,
                                      const Taps& taps, uint8_t* to) {
  for (int64_t y = 0; y < rows; ++y, from += stride, to += taps.runs.size() * 3)
    resize_row(from, taps, to);
}

/// All rows of the result, made of rows of `bytes` bytes; `from` is the row with number `first`.
GRADUS_ALWAYS_INLINE void rows_down(const uint8_t* from, int64_t stride, int64_t bytes,
                                    const Taps& taps, int64_t first, uint8_t* to) {
  for (size_t y = 0; y < taps.runs.size(); ++y, to += bytes) {
    const auto& run = taps.runs[y];
    blend_rows(from + (run.first - first) * stride, stride, bytes,
               taps.weights.data() + int64_t(y) * taps.room, run.count, to);
  }
}

#ifdef __x86_64__
/// The weights of four taps as AVX2 multiplies and adds them: in pairs of 16-bit numbers, the first
/// pair once for each colour, then the second. A weight is `high` * 2^15 + `low`.
struct alignas(32) TapQuad {
  int16_t low[16] = {}, high[16] = {};
};
constexpr int kLowBits = 15;
/// So many bytes behind a row may be read with it.
constexpr int64_t kReadBeyond = 13;

/// The quads of every output pixel, the same number for each.
std::vector<TapQuad> make_quads(const Taps& taps) {
  const auto room = (taps.room + 3) / 4;
  std::vector<TapQuad> quads(taps.runs.size() * size_t(room));
  for (size_t i = 0; i < taps.runs.size(); ++i) {
    for (int64_t k = 0; k < taps.runs[i].count; ++k) {
      const auto weight = taps.weights[i * size_t(taps.room) + size_t(k)];
      auto& quad = quads[i * size_t(room) + size_t(k / 4)];
      for (int64_t colour = 0; colour < 4; ++colour) {
        const auto place = k % 4 / 2 * 8 + colour * 2 + k % 2;
        quad.low[place] = int16_t(weight & ((1 << kLowBits) - 1));
        quad.high[place] = int16_t(weight >> kLowBits);
      }
    }
  }
  return quads;
}

__attribute__((target("avx2"))) void resize_row_avx2(const uint8_t* from, const Taps& taps,
                                                     const std::vector<TapQuad>& quads,
                                                     uint8_t* to) {
  // Four pixels of three bytes become pairs of 16-bit numbers: two reds, two greens, two blues.
  const auto spread = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                       6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const auto room = quads.size() / taps.runs.size();
  const auto* pixel_quads = quads.data();
  for (const auto& run : taps.runs) {
    const auto* place = from + run.first * 3;
    const auto* quad = pixel_quads;
    auto low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
    for (int64_t k = 0; k < run.count; k += 4, place += 12, ++quad) {
      const auto bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(place));
      const auto pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), spread);
      const auto* weights = reinterpret_cast<const __m256i*>(quad);
      low = _mm256_add_epi32(low, _mm256_madd_epi16(pixels, _mm256_load_si256(weights)));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(pixels, _mm256_load_si256(weights + 1)));
    }
    const auto both = _mm256_add_epi32(_mm256_slli_epi32(high, kLowBits), low);
    auto sums = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sums = _mm_srai_epi32(_mm_add_epi32(sums, _mm_set1_epi32(kHalf)), kWeightBits);
    sums = _mm_packs_epi32(sums, sums);
    const auto pixel = _mm_cvtsi128_si32(_mm_packus_epi16(sums, sums));  // limited to 0 … 255
    std::memcpy(to, &pixel, 3);
    to += 3;
    pixel_quads += room;
  }
}

/// `readable`: the bytes from `from` on that may be read.
__attribute__((target("avx2"))) void rows_across_avx2(const uint8_t* from, int64_t stride,
                                                      int64_t rows, const Taps& taps,
                                                      int64_t readable, uint8_t* to) {
  const auto quads = make_quads(taps);
  const auto& last = taps.runs.back();
  const auto needed = (last.first + last.count) * 3 + kReadBeyond;
  for (int64_t y = 0; y < rows; ++y, from += stride, to += taps.runs.size() * 3) {
    if (readable - y * stride >= needed)
      resize_row_avx2(from, taps, quads, to);
    else
      resize_row(from, taps, to);
  }
}

/// The halves of two weights, as pairs that are multiplied and added at once.
struct TapPair {
  int32_t low = 0, high = 0;
};

TapPair pair_of(int32_t first, int32_t second) {
  constexpr int32_t kLowMask = (1 << kLowBits) - 1;
  const auto joined = [](int32_t a, int32_t b) {
    return int32_t((uint32_t(a) & 0xffffU) | uint32_t(b) << 16);
  };
  return {joined(first & kLowMask, second & kLowMask),
          joined(first >> kLowBits, second >> kLowBits)};
}

/// 16 bytes of two rows, side by side in pairs of 16-bit numbers, multiplied and added to the sums
/// of both halves of the weights.
__attribute__((target("avx2"))) inline __attribute__((always_inline)) void add_two_rows(
    const uint8_t* one, const uint8_t* other, __m256i low_weights, __m256i high_weights,
    __m256i* low, __m256i* high) {
  const auto a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(one));
  const auto b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(other));
  const auto front = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
  const auto back = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
  low[0] = _mm256_add_epi32(low[0], _mm256_madd_epi16(front, low_weights));
  high[0] = _mm256_add_epi32(high[0], _mm256_madd_epi16(front, high_weights));
  low[1] = _mm256_add_epi32(low[1], _mm256_madd_epi16(back, low_weights));
  high[1] = _mm256_add_epi32(high[1], _mm256_madd_epi16(back, high_weights));
}

/// Eight sums as rounded numbers of 32 bits.
__attribute__((target("avx2"))) inline __attribute__((always_inline)) __m256i
rounded_sums(__m256i low, __m256i high) {
  const auto both = _mm256_add_epi32(_mm256_slli_epi32(high, kLowBits), low);
  return _mm256_srai_epi32(_mm256_add_epi32(both, _mm256_set1_epi32(kHalf)), kWeightBits);
}

/// `blend_rows` with the weights of two rows at once.
__attribute__((target("avx2"))) void blend_rows_avx2(const uint8_t* from, int64_t stride,
                                                     int64_t bytes, const int32_t* weights,
                                                     const std::vector<TapPair>& pairs,
                                                     int64_t count, uint8_t* to) {
  constexpr int64_t kBlock = 32;
  int64_t i = 0;
  for (; i + kBlock <= bytes; i += kBlock) {
    __m256i low[4] = {}, high[4] = {};
    const auto* place = from + i;
    for (int64_t k = 0; k < count; k += 2, place += 2 * stride) {
      // The last row of an odd number stands beside itself, with the weight 0.
      const auto* next = k + 1 < count ? place + stride : place;
      const auto& pair = pairs[size_t(k / 2)];
      const auto low_weights = _mm256_set1_epi32(pair.low),
                 high_weights = _mm256_set1_epi32(pair.high);
      add_two_rows(place, next, low_weights, high_weights, low, high);
      add_two_rows(place + 16, next + 16, low_weights, high_weights, low + 2, high + 2);
    }
    for (int part = 0; part < 2; ++part) {
      const auto words = _mm256_permute4x64_epi64(
          _mm256_packs_epi32(rounded_sums(low[2 * part], high[2 * part]),
                             rounded_sums(low[2 * part + 1], high[2 * part + 1])),
          0xd8);
      const auto pixels =
          _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i + 16 * part), pixels);
    }
  }
  blend_rows(from + i, stride, bytes - i, weights, count, to + i);
}

__attribute__((target("avx2"))) void rows_down_avx2(const uint8_t* from, int64_t stride,
                                                    int64_t bytes, const Taps& taps, int64_t first,
                                                    uint8_t* to) {
  std::vector<TapPair> pairs(static_cast<size_t>(taps.room / 2 + 1));
  for (size_t y = 0; y < taps.runs.size(); ++y, to += bytes) {
    const auto& run = taps.runs[y];
    const auto* weights = taps.weights.data() + int64_t(y) * taps.room;
    for (int64_t k = 0; k < run.count; k += 2)
      pairs[size_t(k / 2)] = pair_of(weights[k], k + 1 < run.count ? weights[k + 1] : 0);
    blend_rows_avx2(from + (run.first - first) * stride, stride, bytes, weights, pairs, run.count,
                    to);
  }
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#endif

void check_image(const torch::Tensor& image, int64_t height, int64_t width) {
  const bool is_image = image.defined() && image.scalar_type() == at::kByte && image.dim() == 3 &&
                        image.size(2) == 3 && image.stride(2) == 1 && image.stride(1) == 3 &&
                        image.numel() > 0 && image.is_cpu();
  if (!is_image || height < 1 || width < 1)
    throw Error("G-IMG-8", ErrorKind::data,
                fmt::format("cannot resize to {} x {}: expected an image of uint8 (height, width, "
                            "3) on the CPU and a size of at least one pixel, received [{}]",
                            height, width,
                            fmt::join(image.defined() ? image.sizes() : at::IntArrayRef(), ", ")),
                "Give what decode_image returns.");
}

/// Resizes rows `first` to `last` across.
torch::Tensor resized_across(const torch::Tensor& image, const Taps& taps, int64_t first,
                             int64_t last) {
  const auto width = static_cast<int64_t>(taps.runs.size());
  auto result = at::empty({last - first, width, 3}, at::kByte);
  const auto* from = image.data_ptr<uint8_t>() + first * image.stride(0);
  auto* to = result.data_ptr<uint8_t>();
#ifdef __x86_64__
  if (has_avx2()) {
    const auto readable = (image.size(0) - 1 - first) * image.stride(0) + image.size(1) * 3;
    rows_across_avx2(from, image.stride(0), last - first, taps, readable, to);
    return result;
  }
#endif
  rows_across(from, image.stride(0), last - first, taps, to);
  return result;
}

/// Resizes down; the first row of `image` has the number `first`.
torch::Tensor resized_down(const torch::Tensor& image, const Taps& taps, int64_t first) {
  const auto height = static_cast<int64_t>(taps.runs.size()), bytes = image.size(1) * 3;
  auto result = at::empty({height, image.size(1), 3}, at::kByte);
  const auto* from = image.data_ptr<uint8_t>();
  auto* to = result.data_ptr<uint8_t>();
#ifdef __x86_64__
  if (has_avx2()) {
    rows_down_avx2(from, image.stride(0), bytes, taps, first, to);
    return result;
  }
#endif
  rows_down(from, image.stride(0), bytes, taps, first, to);
  return result;
}

/// The place of the pixel that each of `count` new ones takes. Pillow adds up, and so the last of
/// many may be another than a product would give.
std::vector<int64_t> nearest_places(int64_t size, double begin, double length, int64_t count) {
  const double step = length / double(count);
  std::vector<int64_t> places;
  double place = begin + step * 0.5;
  for (int64_t i = 0; i < count; ++i, place += step)
    places.push_back(std::clamp<int64_t>(int64_t(place), 0, size - 1));
  return places;
}

torch::Tensor nearest_pixels(const torch::Tensor& image, int64_t height, int64_t width,
                             const CropBox& box) {
  const auto rows = nearest_places(image.size(0), box.top, box.height, height);
  const auto columns = nearest_places(image.size(1), box.left, box.width, width);
  auto result = at::empty({height, width, 3}, at::kByte);
  auto* to = result.data_ptr<uint8_t>();
  for (const auto row : rows)
    for (const auto column : columns)
      to = std::copy_n(image.data_ptr<uint8_t>() + row * image.stride(0) + 3 * column, 3, to);
  return result;
}

/// Whether Pillow 13 resizes down before it resizes across. Between the two passes pixels are
/// rounded, so the order shows.
bool starts_down(int64_t rows, int64_t columns, int64_t height, int64_t width) {
  return height < rows && rows - height > 2 * (columns - width);
}

}  // namespace

torch::Tensor resize_image(const torch::Tensor& image, int64_t height, int64_t width,
                           ResizeFilter filter, const std::optional<CropBox>& part) {
  check_image(image, height, width);
  const int64_t rows = image.size(0), columns = image.size(1);
  const CropBox box = part.value_or(CropBox{0, 0, double(rows), double(columns)});
  const bool across = width != columns || box.left != 0 || box.width != double(columns);
  const bool down = height != rows || box.top != 0 || box.height != double(rows);
  if (!across && !down) return image;
  if (filter == ResizeFilter::nearest) return nearest_pixels(image, height, width, box);
  const auto by_row = make_taps(rows, box.top, box.top + box.height, height, filter);
  if (!across) return resized_down(image, by_row, 0);
  const auto by_column = make_taps(columns, box.left, box.left + box.width, width, filter);
  if (!down) return resized_across(image, by_column, 0, rows);
  if (starts_down(rows, columns, height, width))
    return resized_across(resized_down(image, by_row, 0), by_column, 0, height);
  // Only the rows that the second pass reads are made.
  const auto first = by_row.runs.front().first;
  const auto last = by_row.runs.back().first + by_row.runs.back().count;
  return resized_down(resized_across(image, by_column, first, last), by_row, first);
}

}  // namespace gradus
