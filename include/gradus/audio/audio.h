#pragma once

#include <gradus/data/example.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace gradus {

/// Sound of one channel.
struct AudioClip {
  torch::Tensor samples;      ///< (samples) float32 from -1 to 1, on the CPU.
  int64_t sampling_rate = 0;  ///< Samples per second.

  /// Length in seconds.
  double seconds() const {
    return sampling_rate == 0 ? 0.0 : double(samples.numel()) / double(sampling_rate);
  }
};

/// How sound is read.
struct AudioOptions {
  /// The rate that clips are brought to; unset: each keeps its own.
  std::optional<int64_t> sampling_rate = std::nullopt;
  /// A clip of more seconds is an error: damaged and hostile files claim any length.
  double max_seconds = 6 * 3600.0;
};

/// What the header of a sound file says.
struct AudioInfo {
  std::string format;         ///< "WAV", "FLAC", "OGG" and so on.
  int64_t sampling_rate = 0;  ///< Samples per second.
  int64_t channels = 0;       ///< 1: mono.
  int64_t frames = 0;         ///< Samples of one channel; 0 where the header does not say.

  /// Length in seconds.
  double seconds() const { return double(frames) / double(sampling_rate); }
};

/// Reads the header of a sound file. `name` is for messages. Throws `Error` G-AUDIO-1 for content
/// that is no sound file. Any thread, several at once.
AudioInfo audio_info(std::string_view content, const std::string& name);

/// Decodes the content of a sound file: WAV, FLAC, OGG and what else libsndfile reads, MP3 with its
/// version 1.1 or later. Several channels become their mean.
///
/// `name` is for messages. Throws `Error` G-AUDIO-1 for content that is no sound file or is
/// damaged, G-AUDIO-2 for a clip that is too long. Any thread, several at once.
AudioClip decode_audio(std::string_view content, const std::string& name,
                       const AudioOptions& options = {});

/// Reads and decodes a file. Throws as `decode_audio`, and G-IO-1 when it cannot be read.
AudioClip read_audio(const std::filesystem::path& file, const AudioOptions& options = {});

/// The clip of a cell of a data set.
///
/// The cell is a path (relative to `folder`), the Audio feature of the `datasets` package (a struct
/// of `bytes` and `path`), or decoded sound (a struct of `array` and `sampling_rate`). Throws as
/// `read_audio`, and `Error` G-AUDIO-3 for a cell of another kind.
AudioClip audio_of(const Value& cell, const std::filesystem::path& folder,
                   const AudioOptions& options = {});

/// The same sound at another rate: what torchaudio's `resample` returns with its defaults (a sinc
/// filter of width 6 with a Hann window and a roll-off of 0.99).
///
/// `samples` is (samples) float32. Throws `Error` G-AUDIO-4 for a rate that is not positive, and
/// for two rates whose ratio is so odd that the filter would be too long.
torch::Tensor resample(const torch::Tensor& samples, int64_t from, int64_t to);

}  // namespace gradus
