#include <fmt/format.h>
#include <gradus/audio/audio.h>
#include <gradus/core/error.h>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <numbers>
#include <numeric>
#include <vector>

namespace gradus {

using torch::Tensor;

namespace {

constexpr double kFilterWidth = 6, kRolloff = 0.99;
/// Taps of all phases together: enough for any two rates up to 384,000, and 32 MB. Making a filter
/// takes about ten times that.
constexpr int64_t kLargestFilter = int64_t{1} << 23;
constexpr size_t kMostKeptTaps = kLargestFilter;

/// One of the filters: output `phase`, `phase + to`, … each use it at another place.
struct Phase {
  int64_t first = 0;  ///< place of the first tap relative to the block's first sample
  std::vector<float> taps;
};

/// The filters between two rates without common divisor.
struct Filter {
  int64_t from = 1, to = 1;
  std::vector<Phase> phases;
};

/// The kernel of torchaudio, computed in float32 as there, without the taps that are zero: each
/// phase has them around its own place in the period.
Filter make_filter(int64_t from, int64_t to) {
  const torch::NoGradGuard no_grad;
  const auto base = static_cast<double>(std::min(from, to)) * kRolloff;
  const auto width =
      static_cast<int64_t>(std::ceil(kFilterWidth * static_cast<double>(from) / base));
  const auto taps = 2 * width + 4;
  if (taps > kLargestFilter / to)
    throw Error("G-AUDIO-4", ErrorKind::data,
                fmt::format("cannot resample by the ratio {} : {}", from, to),
                "Use sound with a common sampling rate, such as 16000, 22050 or 44100.");
  const auto phases = at::arange(to, torch::kLong);
  const auto firsts = at::floor_divide(phases * from, to) - (width + 1);
  const auto places = firsts.unsqueeze(1) + at::arange(taps, torch::kLong).unsqueeze(0);
  const auto offsets = at::arange(0, -to, -1, torch::kFloat).unsqueeze(1) / double(to);
  auto t = offsets + places.to(torch::kFloat) / double(from);
  t = (t * base).clamp(-kFilterWidth, kFilterWidth);
  const auto is_inside = t.abs()
                             .lt(kFilterWidth)
                             .logical_and(places.ge(-width))
                             .logical_and(places.lt(width + from))
                             .contiguous();
  const auto window = (t * std::numbers::pi / kFilterWidth / 2).cos().square();
  t = t * std::numbers::pi;
  const auto kernel = (at::where(t == 0, at::ones_like(t), t.sin() / t) *
                       (window * (base / static_cast<double>(from))))
                          .contiguous();
  Filter filter{from, to, std::vector<Phase>(static_cast<size_t>(to))};
  for (int64_t phase = 0; phase < to; ++phase) {
    const auto* inside = is_inside.const_data_ptr<bool>() + phase * taps;
    const auto* values = kernel.const_data_ptr<float>() + phase * taps;
    const auto first = std::find(inside, inside + taps, true) - inside;
    auto last = taps;
    while (last > first && !inside[last - 1]) --last;
    auto& one = filter.phases[static_cast<size_t>(phase)];
    one.first = firsts.const_data_ptr<int64_t>()[phase] + first;
    one.taps.assign(values + first, values + last);
  }
  return filter;
}

/// Keeps the filters that were used last, as far as there is room: a data set has few rates,
/// hostile files have any.
class FilterShelf {
 public:
  std::shared_ptr<const Filter> filter(int64_t from, int64_t to) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& filter) {
      return filter->from == from && filter->to == to;
    });
    auto filter = found != kept_.end() ? std::move(*found)
                                       : std::make_shared<const Filter>(make_filter(from, to));
    if (found != kept_.end()) kept_.erase(found);
    kept_.push_back(filter);
    while (kept_.size() > 1 && taps_of_all() > kMostKeptTaps) kept_.erase(kept_.begin());
    return filter;
  }

 private:
  size_t taps_of_all() const {
    size_t sum = 0;
    for (const auto& filter : kept_)
      for (const auto& phase : filter->phases) sum += phase.taps.size() + sizeof(Phase) / 4;
    return sum;
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<const Filter>> kept_;  ///< the last one used at the end
};

std::shared_ptr<const Filter> filter_for(int64_t from, int64_t to) {
  static FilterShelf shelf;
  return shelf.filter(from, to);
}

/// A dot product in eight running sums, which the compiler keeps in vector registers.
inline __attribute__((always_inline)) float dot(const float* a, const float* b, size_t count) {
  using Eight = float __attribute__((vector_size(32)));
  Eight sums = {};
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    Eight x, y;
    std::memcpy(&x, a + i, sizeof(x));
    std::memcpy(&y, b + i, sizeof(y));
    sums += x * y;
  }
  float total =
      ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

/// The same at the ends, where the filter reaches beyond the sound.
float dot_within(const std::vector<float>& taps, const float* samples, int64_t count,
                 int64_t first) {
  float total = 0;
  for (size_t k = 0; k < taps.size(); ++k) {
    const auto place = first + static_cast<int64_t>(k);
    if (place >= 0 && place < count) total += taps[k] * samples[place];
  }
  return total;
}

/// `length` samples at the new rate from `count` at the old one.
inline __attribute__((always_inline)) void convolve(const Filter& filter, const float* in,
                                                    int64_t count, float* out, int64_t length) {
  for (int64_t begin = 0, place = 0; begin < length; begin += filter.to, place += filter.from) {
    const auto phases = std::min(filter.to, length - begin);
    for (int64_t i = 0; i < phases; ++i) {
      const auto& phase = filter.phases[static_cast<size_t>(i)];
      const auto first = place + phase.first;
      const auto taps = static_cast<int64_t>(phase.taps.size());
      out[begin + i] = first >= 0 && first + taps <= count
                           ? dot(phase.taps.data(), in + first, phase.taps.size())
                           : dot_within(phase.taps, in, count, first);
    }
  }
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) void convolve_with_avx2(const Filter& filter, const float* in,
                                                            int64_t count, float* out,
                                                            int64_t length) {
  convolve(filter, in, count, out, length);
}
#endif

void convolve_here(const Filter& filter, const float* in, int64_t count, float* out,
                   int64_t length) {
#ifdef __x86_64__
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) return convolve_with_avx2(filter, in, count, out, length);
#endif
  convolve(filter, in, count, out, length);
}

}  // namespace

Tensor resample(const Tensor& samples, int64_t from, int64_t to) {
  if (from <= 0 || to <= 0)
    throw Error("G-AUDIO-4", ErrorKind::data,
                fmt::format("cannot resample from {} to {} samples per second", from, to),
                "Sampling rates are positive, such as 16000.");
  if (from == to) return samples;
  const auto common = std::gcd(from, to);
  const auto filter = filter_for(from / common, to / common);
  const auto sound = samples.contiguous();
  const auto count = sound.numel();
  // As torchaudio rounds: the quotient is a double, then a float.
  const auto exact = static_cast<double>(filter->to * count) / static_cast<double>(filter->from);
  const auto length = static_cast<int64_t>(std::ceil(static_cast<float>(exact)));
  auto result = at::empty({length}, torch::kFloat);
  convolve_here(*filter, sound.const_data_ptr<float>(), count, result.data_ptr<float>(), length);
  return result;
}

}  // namespace gradus
