#include <fmt/format.h>
#include <gradus/audio/feature_extractor.h>
#include <gradus/core/error.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/hann_window.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stft.h>
#include <ATen/ops/where.h>

#include <cmath>

namespace gradus {

using torch::Tensor;

namespace {

// Slaney's mel scale: linear up to 1000 Hz, logarithmic above.
constexpr double kHertzPerMel = 200.0 / 3, kLinearEnd = 1000.0, kLinearEndMel = 15.0;
const double kLogStep = std::log(6.4) / 27.0;

double mel_of(double hertz) {
  return hertz < kLinearEnd ? hertz / kHertzPerMel
                            : kLinearEndMel + std::log(hertz / kLinearEnd) / kLogStep;
}

}  // namespace

Tensor mel_filter_bank(const LogMelOptions& options) {
  const auto top = static_cast<double>(options.sampling_rate) / 2;
  const auto bins = options.n_fft / 2 + 1;
  // Up to 8000 Hz at every rate, as there: bands above half the rate are empty.
  const auto mels =
      at::linspace(mel_of(0), mel_of(8000.0), options.feature_size + 2, torch::kDouble);
  const auto edges = at::where(mels < kLinearEndMel, mels * kHertzPerMel,
                               ((mels - kLinearEndMel) * kLogStep).exp() * kLinearEnd);
  const auto places = at::linspace(0, top, bins, torch::kDouble).unsqueeze(1);
  const auto low = edges.narrow(0, 0, options.feature_size),
             middle = edges.narrow(0, 1, options.feature_size),
             high = edges.narrow(0, 2, options.feature_size);
  const auto rising = (places - low) / (middle - low), falling = (high - places) / (high - middle);
  return at::minimum(rising, falling).clamp_min(0) * (2.0 / (high - low)).unsqueeze(0);
}

Tensor log_mel_spectrogram(const Tensor& samples, const LogMelOptions& options) {
  if (samples.dim() != 1 || samples.numel() <= options.n_fft / 2)
    throw Error("G-AUDIO-6", ErrorKind::data,
                fmt::format("log-mel features need a clip of more than {} samples, received {}",
                            options.n_fft / 2, samples.numel()),
                "Leave out clips that are too short, or pad them.");
  const auto window = at::hann_window(options.n_fft, torch::kFloat);
  const auto spectrum =
      at::stft(samples.to(torch::kFloat), options.n_fft, options.hop_length, options.n_fft, window,
               /*center=*/true, "reflect", /*normalized=*/false, /*onesided=*/true,
               /*return_complex=*/true);
  const auto power = spectrum.narrow(-1, 0, spectrum.size(-1) - 1).abs().square();
  const auto mel = mel_filter_bank(options).to(torch::kFloat).t().matmul(power);
  const auto logarithm = mel.clamp_min(1e-10).log10();
  return (at::maximum(logarithm, logarithm.max() - 8.0) + 4.0) / 4.0;
}

}  // namespace gradus
