#include <fmt/format.h>
#include <gradus/audio/audio.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/printable.h>
#include <sndfile.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace gradus {

using torch::Tensor;

namespace {

constexpr int64_t kFramesAtOnce = 1 << 16;
constexpr int kMostChannels = 64;
constexpr double kMostSamples = double(int64_t{1} << 31);  // whatever rate a header claims

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

/// Reads to the end, whatever the header says about it.
std::vector<float> all_frames(SNDFILE* file, const SF_INFO& info, const std::string& name,
                              const AudioOptions& options) {
  const auto most =
      std::min(static_cast<double>(info.samplerate) * options.max_seconds, kMostSamples);
  const auto channels = static_cast<size_t>(info.channels);
  std::vector<float> mono;
  std::vector<float> block(static_cast<size_t>(kFramesAtOnce) * channels);
  while (true) {
    const auto frames = sf_readf_float(file, block.data(), kFramesAtOnce);
    if (frames <= 0) break;
    const auto begin = mono.size();
    mono.resize(begin + static_cast<size_t>(frames));
    if (static_cast<double>(mono.size()) > most)
      refuse_sound("G-AUDIO-2", name,
                   fmt::format("the sound is longer than {} seconds", options.max_seconds),
                   "Cut it, or leave it out of the data set.");
    for (size_t i = 0; i < static_cast<size_t>(frames); ++i) {
      float sum = block[i * channels];
      for (size_t c = 1; c < channels; ++c) sum += block[i * channels + c];
      mono[begin + i] = channels == 1 ? sum : sum / static_cast<float>(channels);
    }
  }
  return mono;
}

AudioClip clip_of_array(const nlohmann::json& cell, const AudioOptions& options) {
  const auto numbers = cell.at("array").get<std::vector<float>>();
  AudioClip clip;
  clip.sampling_rate = cell.at("sampling_rate").get<int64_t>();
  clip.samples = at::empty({static_cast<int64_t>(numbers.size())}, torch::kFloat);
  std::copy(numbers.begin(), numbers.end(), clip.samples.data_ptr<float>());
  if (options.sampling_rate) {
    clip.samples = resample(clip.samples, clip.sampling_rate, *options.sampling_rate);
    clip.sampling_rate = *options.sampling_rate;
  }
  return clip;
}

}  // namespace

AudioClip decode_audio(std::string_view content, const std::string& name,
                       const AudioOptions& options) {
  SoundBytes bytes{content};
  SF_VIRTUAL_IO access{bytes_length, bytes_seek, bytes_read, bytes_write, bytes_tell};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, CloseSound> file(
      sf_open_virtual(&access, SFM_READ, &info, &bytes));
  if (!file || info.channels < 1 || info.samplerate < 1)
    refuse_sound("G-AUDIO-1", name,
                 content.empty() ? "the file is empty, expected sound"
                                 : "it is not a sound file that can be read, or it is damaged",
                 "Expected are WAV, FLAC, OGG or MP3. Leave the file out, or let gradus do so with "
                 "--skip_bad_rows.");
  if (info.channels > kMostChannels)
    refuse_sound("G-AUDIO-1", name, fmt::format("it has {} channels", info.channels),
                 "Sound has at most 64 channels here.");
  const auto mono = all_frames(file.get(), info, name, options);
  const bool is_cut = info.frames > 0 && info.frames < SF_COUNT_MAX &&
                      static_cast<sf_count_t>(mono.size()) < info.frames;
  if (sf_error(file.get()) != SF_ERR_NO_ERROR || is_cut)
    refuse_sound("G-AUDIO-1", name,
                 fmt::format("the file is damaged: {} of {} samples could be read", mono.size(),
                             info.frames),
                 "Leave the file out, or let gradus do so with --skip_bad_rows.");
  AudioClip clip;
  clip.sampling_rate = info.samplerate;
  clip.samples = at::empty({static_cast<int64_t>(mono.size())}, torch::kFloat);
  std::copy(mono.begin(), mono.end(), clip.samples.data_ptr<float>());
  if (options.sampling_rate) {
    clip.samples = resample(clip.samples, clip.sampling_rate, *options.sampling_rate);
    clip.sampling_rate = *options.sampling_rate;
  }
  return clip;
}

AudioClip read_audio(const std::filesystem::path& file, const AudioOptions& options) {
  return decode_audio(read_file(file), file.string(), options);
}

AudioClip audio_of(const Value& cell, const std::filesystem::path& folder,
                   const AudioOptions& options) {
  const auto at_path = [&](const std::string& path) {
    return std::filesystem::path(path).is_absolute() ? std::filesystem::path(path) : folder / path;
  };
  if (cell.is_string()) return read_audio(at_path(cell.str()), options);
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
