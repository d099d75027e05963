#include <fmt/format.h>
#include <gradus/audio/audio.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/printable.h>
#include <sndfile.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "audio/sound_file.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr int64_t kFramesAtOnce = 1 << 22;      // memory that a header alone can claim
constexpr int64_t kFramesOfChannels = 1 << 12;  // read at once when there are several channels
constexpr int kMostChannels = 64;
// Whatever rate a header claims, and however well silence packs.
constexpr double kFreeSamples = double(kFramesAtOnce), kSamplesPerByte = 200;

[[noreturn]] void refuse_sound(const char* id, const std::string& name, const std::string& what,
                               const char* advice) {
  throw Error(id, ErrorKind::data, fmt::format("{}: {}", printable(name), what), advice);
}

/// Content in memory, as libsndfile reads files.
struct SoundBytes {
  std::string_view content;
  sf_count_t place = 0;
};

sf_count_t bytes_length(void* data) {
  return static_cast<sf_count_t>(static_cast<SoundBytes*>(data)->content.size());
}

sf_count_t bytes_seek(sf_count_t offset, int whence, void* data) {
  auto& bytes = *static_cast<SoundBytes*>(data);
  const auto size = static_cast<sf_count_t>(bytes.content.size());
  const auto from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? bytes.place : size;
  if (offset > size - from || offset < -from) return -1;
  return bytes.place = from + offset;
}

sf_count_t bytes_read(void* target, sf_count_t count, void* data) {
  auto& bytes = *static_cast<SoundBytes*>(data);
  const auto left = static_cast<sf_count_t>(bytes.content.size()) - bytes.place;
  const auto taken = std::max<sf_count_t>(std::min(count, left), 0);
  std::memcpy(target, bytes.content.data() + bytes.place, static_cast<size_t>(taken));
  bytes.place += taken;
  return taken;
}

sf_count_t bytes_write(const void*, sf_count_t, void*) { return 0; }

sf_count_t bytes_tell(void* data) { return static_cast<SoundBytes*>(data)->place; }

struct CloseSound {
  void operator()(SNDFILE* file) const { sf_close(file); }
};

/// A sound file in memory, opened.
class SoundReader {
 public:
  SoundReader(std::string_view content, const std::string& name) : bytes_{content}, name_(name) {
    SF_VIRTUAL_IO access{bytes_length, bytes_seek, bytes_read, bytes_write, bytes_tell};
    file_.reset(sf_open_virtual(&access, SFM_READ, &info_, &bytes_));
    if (!file_ || info_.channels < 1 || info_.samplerate < 1)
      refuse_sound("G-AUDIO-1", name,
                   content.empty() ? "the file is empty, expected sound"
                                   : "it is not a sound file that can be read, or it is damaged",
                   "Expected are WAV, FLAC, OGG or MP3. Leave the file out, or let gradus do so "
                   "with --skip_bad_rows.");
    if (info_.channels > kMostChannels)
      refuse_sound("G-AUDIO-1", name, fmt::format("it has {} channels", info_.channels),
                   "Sound has at most 64 channels here.");
  }

  const SF_INFO& info() const { return info_; }
  SNDFILE* file() const { return file_.get(); }
  /// Whether the header says how long the sound is.
  bool says_length() const { return info_.frames > 0 && info_.frames < SF_COUNT_MAX; }

  /// The mean of the channels, to the file's end, whatever the header says about it. The memory
  /// grows with what is there, not with what is claimed.
  Tensor all_frames(double max_seconds) {
    const auto most = double(info_.samplerate) * max_seconds;
    const auto most_of_bytes = kFreeSamples + kSamplesPerByte * double(bytes_.content.size());
    // One more than the header says, to see whether the sound goes on.
    auto samples =
        at::empty({std::clamp<int64_t>(info_.frames, 0, kFramesAtOnce) + 1}, torch::kFloat);
    int64_t count = 0;
    while (true) {
      if (count == samples.numel()) samples.resize_({2 * count});
      const auto frames = read(samples.data_ptr<float>() + count, samples.numel() - count);
      if (frames <= 0) break;
      count += frames;
      if (double(count) > most)
        refuse_sound("G-AUDIO-2", name_,
                     fmt::format("the sound is longer than {} seconds", max_seconds),
                     "Cut it, or leave it out of the data set.");
      if (double(count) > most_of_bytes)
        refuse_sound("G-AUDIO-2", name_,
                     fmt::format("its {} bytes hold more than {:.0f} samples",
                                 bytes_.content.size(), most_of_bytes),
                     "Only silence packs so well. Leave the file out, or let gradus do so with "
                     "--skip_bad_rows.");
    }
    const bool is_cut = says_length() && count < info_.frames;
    if (sf_error(file_.get()) != SF_ERR_NO_ERROR || is_cut)
      refuse_sound(
          "G-AUDIO-1", name_,
          fmt::format("the file is damaged: {} of {} samples could be read", count, info_.frames),
          "Leave the file out, or let gradus do so with --skip_bad_rows.");
    return samples.narrow(0, 0, count);
  }

 private:
  /// Up to `count` frames of one channel.
  sf_count_t read(float* target, int64_t count) {
    if (info_.channels == 1) return sf_readf_float(file_.get(), target, count);
    const auto channels = static_cast<size_t>(info_.channels);
    block_.resize(static_cast<size_t>(kFramesOfChannels) * channels);
    const auto frames =
        sf_readf_float(file_.get(), block_.data(), std::min(count, kFramesOfChannels));
    for (size_t i = 0; i < static_cast<size_t>(std::max<sf_count_t>(frames, 0)); ++i) {
      float sum = block_[i * channels];
      for (size_t c = 1; c < channels; ++c) sum += block_[i * channels + c];
      target[i] = sum / static_cast<float>(channels);
    }
    return frames;
  }

  SoundBytes bytes_;
  const std::string& name_;
  SF_INFO info_{};
  std::unique_ptr<SNDFILE, CloseSound> file_;
  std::vector<float> block_;
};

AudioClip brought_to(AudioClip clip, const AudioOptions& options, const std::string& name) try {
  if (!options.sampling_rate) return clip;
  return {resample(clip.samples, clip.sampling_rate, *options.sampling_rate),
          *options.sampling_rate};
} catch (const Error& error) {
  throw Error(error.id(), error.kind(), fmt::format("{}: {}", printable(name), error.message()),
              error.advice());
}

constexpr int64_t kLargestRate = 1'000'000'000;

AudioClip clip_of_array(const nlohmann::ordered_json& cell, const AudioOptions& options) {
  const auto& numbers = cell.at("array");
  const auto& rate = cell.at("sampling_rate");
  const auto is_number = [](const nlohmann::ordered_json& item) { return item.is_number(); };
  if (!rate.is_number_integer() || rate.get<int64_t>() < 1 || rate.get<int64_t>() > kLargestRate ||
      !numbers.is_array() || !std::all_of(numbers.begin(), numbers.end(), is_number))
    throw Error("G-AUDIO-3", ErrorKind::data,
                "a cell of audio has an array that is not a list of numbers, or a sampling_rate "
                "that is not a positive whole number",
                "Give one number for each sample: sound with several channels must be mixed.");
  AudioClip clip;
  clip.sampling_rate = rate.get<int64_t>();
  clip.samples = at::empty({static_cast<int64_t>(numbers.size())}, torch::kFloat);
  auto* to = clip.samples.data_ptr<float>();
  for (const auto& number : numbers) *to++ = number.get<float>();
  return brought_to(std::move(clip), options, "array");
}

}  // namespace

AudioInfo audio_info(std::string_view content, const std::string& name) {
  const SoundReader reader(content, name);
  SF_FORMAT_INFO format{};
  format.format = reader.info().format & SF_FORMAT_TYPEMASK;
  const bool is_known = sf_command(nullptr, SFC_GET_FORMAT_INFO, &format, sizeof(format)) == 0;
  const std::string long_name = is_known && format.name != nullptr ? format.name : "sound";
  return {.format = long_name.substr(0, long_name.find(' ')),
          .sampling_rate = reader.info().samplerate,
          .channels = reader.info().channels,
          .frames = reader.says_length() ? reader.info().frames : 0};
}

AudioClip decode_audio(std::string_view content, const std::string& name,
                       const AudioOptions& options) {
  SoundReader reader(content, name);
  AudioClip clip;
  clip.samples = reader.all_frames(options.max_seconds);
  clip.sampling_rate = reader.info().samplerate;
  return brought_to(std::move(clip), options, name);
}

AudioClip read_audio(const std::filesystem::path& file, const AudioOptions& options) {
  return decode_audio(read_file(file), file.string(), options);
}

AudioClip audio_of(const Value& cell, const std::filesystem::path& folder,
                   const AudioOptions& options) {
  const auto at_path = [&](const std::string& path) {
    return std::filesystem::path(path).is_absolute() ? std::filesystem::path(path) : folder / path;
  };
  if (cell.is_string())
    return is_file_content(cell.str()) ? decode_audio(cell.str(), "audio", options)
                                       : read_audio(at_path(cell.str()), options);
  if (cell.is_nested() && cell.json().is_object()) {
    const auto& fields = cell.json();
    const auto bytes = fields.find("bytes"), path = fields.find("path");
    const auto name = path != fields.end() && path->is_string() ? path->get<std::string>() : "";
    if (bytes != fields.end() && bytes->is_string())
      return decode_audio(bytes->get_ref<const std::string&>(), name.empty() ? "audio" : name,
                          options);
    if (!name.empty()) return read_audio(at_path(name), options);
    if (fields.contains("array") && fields.contains("sampling_rate"))
      return clip_of_array(fields, options);
  }
  throw Error("G-AUDIO-3", ErrorKind::data,
              fmt::format("a cell of audio is a {}: expected a path, or a struct with bytes and "
                          "path, or one with array and sampling_rate",
                          cell.type_name()),
              "Name the right column with --audio_column_name.");
}

}  // namespace gradus
