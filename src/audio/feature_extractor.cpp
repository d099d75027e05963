#include <fmt/format.h>
#include <gradus/audio/feature_extractor.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numeric>
#include <span>

namespace gradus {

using torch::Tensor;
namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_extractor(const std::string& message) {
  throw Error("G-AUDIO-5", ErrorKind::model, message,
              "Copy the preprocessor_config.json of the model into the folder; transformers writes "
              "it with feature_extractor.save_pretrained().");
}

nlohmann::json extractor_settings(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "preprocessor_config.json", ignored))
    return read_json(folder / "preprocessor_config.json");
  if (fs::exists(folder / "processor_config.json", ignored)) {
    const auto all = read_json(folder / "processor_config.json");
    const auto found = all.find("feature_extractor");
    if (found != all.end()) return *found;
  }
  refuse_extractor(fmt::format("{} has no preprocessor_config.json", folder.string()));
}

/// The sum of `function` of all values, in double precision: a float's own rounding would show in
/// long clips. Eight running sums do not wait for each other.
template <class Function>
double sum_of(std::span<const float> values, Function function) {
  double sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= values.size(); i += 8)
    for (size_t k = 0; k < 8; ++k) sums[k] += function(double(values[i + k]));
  for (; i < values.size(); ++i) sums[0] += function(double(values[i]));
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

}  // namespace

Wav2Vec2FeatureExtractor Wav2Vec2FeatureExtractor::from_pretrained(const fs::path& folder) {
  const auto settings = extractor_settings(folder);
  Wav2Vec2FeatureExtractor result;
  try {
    result.feature_size = settings.value("feature_size", result.feature_size);
    result.sampling_rate = settings.value("sampling_rate", result.sampling_rate);
    result.padding_value = settings.value("padding_value", result.padding_value);
    result.do_normalize = settings.value("do_normalize", result.do_normalize);
    result.return_attention_mask =
        settings.value("return_attention_mask", result.return_attention_mask);
    result.padding_side = settings.value("padding_side", result.padding_side);
  } catch (const nlohmann::json::exception& error) {
    refuse_extractor(
        fmt::format("preprocessor_config.json of {}: {}", folder.string(), error.what()));
  }
  if (result.padding_side != "right" && result.padding_side != "left")
    refuse_extractor(
        fmt::format("preprocessor_config.json of {}: padding_side must be right or left, "
                    "received {}",
                    folder.string(), result.padding_side));
  if (result.feature_size != 1 || result.sampling_rate < 1)
    refuse_extractor(
        fmt::format("preprocessor_config.json of {}: feature_size must be 1 and "
                    "sampling_rate positive, received {} and {}",
                    folder.string(), result.feature_size, result.sampling_rate));
  return result;
}

nlohmann::json Wav2Vec2FeatureExtractor::to_json() const {
  return {{"do_normalize", do_normalize},   {"feature_extractor_type", "Wav2Vec2FeatureExtractor"},
          {"feature_size", feature_size},   {"padding_side", padding_side},
          {"padding_value", padding_value}, {"return_attention_mask", return_attention_mask},
          {"sampling_rate", sampling_rate}};
}

void Wav2Vec2FeatureExtractor::save_pretrained(const fs::path& folder) const {
  make_directory(folder);
  write_file_atomically(folder / "preprocessor_config.json", to_json().dump(2) + "\n");
}

Tensor Wav2Vec2FeatureExtractor::operator()(const Tensor& samples,
                                            std::optional<int64_t> rate) const {
  if (rate && *rate != sampling_rate)
    throw Error(
        "G-AUDIO-6", ErrorKind::data,
        fmt::format("the sound has {} samples per second, expected {}", *rate, sampling_rate),
        "Resample it first: AudioOptions::sampling_rate, or resample().");
  if (samples.dim() != 1 || samples.numel() == 0)
    throw Error("G-AUDIO-6", ErrorKind::data,
                samples.dim() == 1
                    ? std::string("the clip is empty")
                    : fmt::format("a clip has one dimension, received {}", samples.dim()),
                "Leave empty clips out (--min_duration_in_seconds).");
  auto sound = samples.to(torch::kFloat).contiguous();
  if (!do_normalize) return sound;
  const auto count = sound.numel();
  const std::span<const float> values(sound.const_data_ptr<float>(), static_cast<size_t>(count));
  const auto mean =
      static_cast<float>(sum_of(values, [](double value) { return value; }) / double(count));
  const auto squares = sum_of(values, [mean](double value) {
    const double distance = value - mean;
    return distance * distance;
  });
  const auto scale = std::sqrt(static_cast<float>(squares / double(count)) + 1e-7f);
  auto normed = at::empty({count}, torch::kFloat);
  auto* out = normed.data_ptr<float>();
  for (const auto value : values) *out++ = (value - mean) / scale;
  return normed;
}

Batch Wav2Vec2FeatureExtractor::pad(std::span<const Tensor> clips,
                                    std::optional<int64_t> multiple) const {
  int64_t longest = 0;
  for (const auto& clip : clips) longest = std::max(longest, clip.numel());
  if (multiple && *multiple > 0) longest = (longest + *multiple - 1) / *multiple * *multiple;
  const auto rows = static_cast<int64_t>(clips.size());
  auto values = at::empty({rows, longest}, torch::kFloat);
  auto mask = return_attention_mask ? at::zeros({rows, longest}, torch::kLong) : Tensor();
  for (int64_t row = 0; row < rows; ++row) {
    const auto& clip = clips[static_cast<size_t>(row)];
    const auto missing = longest - clip.numel();
    const auto start = padding_side == "left" ? missing : 0;
    values[row].narrow(0, start, clip.numel()).copy_(clip);
    values[row].narrow(0, start == 0 ? clip.numel() : 0, missing).fill_(padding_value);
    if (mask.defined()) mask[row].narrow(0, start, clip.numel()).fill_(1);
  }
  Batch batch{{"input_values", values}};
  if (mask.defined()) batch.set("attention_mask", mask);
  return batch;
}

}  // namespace gradus
