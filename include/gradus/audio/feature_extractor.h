#pragma once

#include <gradus/data/batch.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

namespace gradus {

/// Prepares sound for wav2vec 2.0 and HuBERT, as transformers' `Wav2Vec2FeatureExtractor` does.
///
/// The members are the keys of preprocessor_config.json. Thread-safety: as a plain struct.
struct Wav2Vec2FeatureExtractor {
  int64_t feature_size = 1;            ///< Numbers per sample.
  int64_t sampling_rate = 16000;       ///< Samples per second that the model was trained on.
  double padding_value = 0.0;          ///< What rows are padded with.
  bool do_normalize = true;            ///< Whether each clip gets mean 0 and variance 1.
  bool return_attention_mask = false;  ///< Whether `pad` makes an attention mask.
  std::string padding_side = "right";  ///< "right" or "left": where `pad` adds values.

  /// Reads preprocessor_config.json, or the feature extractor of processor_config.json, of a
  /// folder. Throws `Error` G-AUDIO-5 when there is none or a value makes no sense.
  static Wav2Vec2FeatureExtractor from_pretrained(const std::filesystem::path& folder);
  /// The content of preprocessor_config.json.
  nlohmann::json to_json() const;
  /// Writes preprocessor_config.json into a folder, which is created.
  void save_pretrained(const std::filesystem::path& folder) const;

  /// The input of the model for one clip: `samples` (samples) float32, normalised if
  /// `do_normalize`. `rate`, where it is known, must be `sampling_rate`; otherwise throws `Error`
  /// G-AUDIO-6.
  torch::Tensor operator()(const torch::Tensor& samples,
                           std::optional<int64_t> rate = std::nullopt) const;

  /// Pads prepared clips to the longest one, or further to a multiple: `input_values`, and
  /// `attention_mask` if `return_attention_mask`.
  Batch pad(std::span<const torch::Tensor> clips,
            std::optional<int64_t> pad_to_multiple_of = std::nullopt) const;
};

/// Log-mel features as transformers' `WhisperFeatureExtractor` gives them.
struct LogMelOptions {
  int64_t feature_size = 80;      ///< Mel bands.
  int64_t sampling_rate = 16000;  ///< Of the sound.
  int64_t hop_length = 160;       ///< Samples between frames.
  int64_t n_fft = 400;            ///< Samples of a frame.
};

/// (feature_size, samples / hop_length) float32: the logarithm of the power in mel bands, at most 8
/// (in decades) below the loudest, then (x + 4) / 4.
///
/// The sound is not padded to 30 seconds here; pad it first for Whisper. Throws `Error` G-AUDIO-6
/// for a clip shorter than a frame.
torch::Tensor log_mel_spectrogram(const torch::Tensor& samples, const LogMelOptions& options = {});

/// (n_fft / 2 + 1, feature_size) float64: the triangles of the mel bands, of Slaney's scale with
/// equal areas.
torch::Tensor mel_filter_bank(const LogMelOptions& options = {});

}  // namespace gradus
