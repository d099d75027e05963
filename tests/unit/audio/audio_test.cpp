#include <gradus/audio/audio.h>
#include <gradus/audio/audio_dataset.h>
#include <gradus/audio/audio_show.h>
#include <gradus/audio/feature_extractor.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

namespace gradus {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

const fs::path kSounds = fs::path(GRADUS_SOURCE_DIR) / "tests/parity/audio/fixtures";

std::map<std::string, Tensor> expected_sounds() {
  std::map<std::string, Tensor> result;
  for (const auto& [name, tensor] : read_safetensors(kSounds / "sounds.safetensors").tensors)
    result[name] = tensor;
  return result;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

template <class F>
std::string error_of(F function) {
  try {
    function();
  } catch (const Error& error) {
    return error.id();
  }
  return "no error";
}

struct SoundFolder {
  SoundFolder() {
    char name[] = "/tmp/gradus-audio-XXXXXX";
    path = mkdtemp(name);
  }
  ~SoundFolder() { fs::remove_all(path); }
  fs::path path;
};

TEST(Audio, DecodesAndResamplesAsSoundfileAndTorchaudio) {
  const auto expected = expected_sounds();
  for (const auto* name : {"mono.wav", "stereo.wav", "float.wav", "mono.flac", "stereo24.flac",
                           "mono.ogg", "stereo.mp3"}) {
    const auto clip = read_audio(kSounds / name);
    const auto& samples = expected.at(std::string(name) + "/samples");
    // A lossy form may be decoded a little differently by another version of the library.
    const bool is_lossy = std::string(name).ends_with("ogg") || std::string(name).ends_with("mp3");
    ASSERT_EQ(clip.samples.numel(), samples.numel()) << name;
    EXPECT_LE(largest_difference(clip.samples, samples), is_lossy ? 1e-4 : 1e-7) << name;
    EXPECT_NEAR(clip.seconds(), 0.125, 1e-3) << name;

    AudioOptions options;
    options.sampling_rate = 16000;
    const auto resampled = resample(samples, clip.sampling_rate, 16000);
    const auto& at_16000 = expected.at(std::string(name) + "/16000");
    ASSERT_EQ(resampled.numel(), at_16000.numel()) << name;
    EXPECT_LE(largest_difference(resampled, at_16000), 2e-6) << name;
    EXPECT_EQ(read_audio(kSounds / name, options).samples.numel(), at_16000.numel()) << name;

    const auto normed = Wav2Vec2FeatureExtractor()(samples, 16000);
    EXPECT_LE(largest_difference(normed, expected.at(std::string(name) + "/normed")), 1e-5) << name;
  }
}

TEST(Audio, ResamplesBetweenManyRates) {
  const auto expected = expected_sounds();
  const auto& noise = expected.at("noise/samples");
  for (const auto& [name, tensor] : expected) {
    if (name.rfind("noise/", 0) != 0 || name == "noise/samples") continue;
    const auto dash = name.find('-');
    const auto from = std::stoll(name.substr(6, dash - 6)), to = std::stoll(name.substr(dash + 1));
    const auto resampled = resample(noise, from, to);
    ASSERT_EQ(resampled.numel(), tensor.numel()) << name;
    EXPECT_LE(largest_difference(resampled, tensor), 2e-6) << name;
  }
  EXPECT_EQ(error_of([&] { resample(noise, 0, 16000); }), "G-AUDIO-4");
  EXPECT_EQ(error_of([&] { resample(noise, 10'000'019, 9'999'991); }), "G-AUDIO-4");
  // A filter of 32 million taps, which took a gigabyte to make.
  EXPECT_EQ(error_of([&] { resample(noise, 10'464'324, 16000); }), "G-AUDIO-4");
  EXPECT_EQ(resample(noise, 384'000, 383'999).numel(), noise.numel());
}

TEST(Audio, LogMelFeaturesAreWhispers) {
  const auto expected = expected_sounds();
  const auto features = log_mel_spectrogram(expected.at("mel/samples"));
  ASSERT_EQ(features.sizes(), expected.at("mel/features").sizes());
  EXPECT_LE(largest_difference(features, expected.at("mel/features")), 1e-4);
  EXPECT_EQ(error_of([] { log_mel_spectrogram(torch::zeros({100})); }), "G-AUDIO-6");
}

TEST(Audio, BadSoundIsNamed) {
  const auto flac = read_file(kSounds / "mono.flac");
  EXPECT_EQ(error_of([] { decode_audio("", "empty.wav"); }), "G-AUDIO-1");
  EXPECT_EQ(error_of([] { decode_audio("no sound at all", "text.wav"); }), "G-AUDIO-1");
  EXPECT_EQ(error_of([&] { decode_audio(flac.substr(0, flac.size() / 2), "cut.flac"); }),
            "G-AUDIO-1");
  AudioOptions options;
  options.max_seconds = 0.1;
  EXPECT_EQ(error_of([&] { decode_audio(flac, "long.flac", options); }), "G-AUDIO-2");
  EXPECT_EQ(error_of([] { audio_of(Value(3), {}); }), "G-AUDIO-3");
  EXPECT_EQ(error_of([] { read_audio("/nowhere.wav"); }), "G-IO-1");
  try {
    decode_audio("no sound at all", "folder/text.wav");
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("folder/text.wav"), std::string::npos);
  }
}

TEST(Audio, CellsArePathsBytesOrArrays) {
  const auto file = kSounds / "mono.wav";
  const auto samples = read_audio(file).samples;
  EXPECT_TRUE(torch::equal(audio_of(Value("mono.wav"), kSounds).samples, samples));
  EXPECT_TRUE(torch::equal(
      audio_of(Value::nested({{"bytes", read_file(file)}, {"path", "x.wav"}}), {}).samples,
      samples));
  EXPECT_TRUE(torch::equal(
      audio_of(Value::nested({{"bytes", nullptr}, {"path", file.string()}}), {}).samples, samples));
  const auto clip = audio_of(Value::nested({{"array", {0.5, -0.5}}, {"sampling_rate", 8000}}), {});
  EXPECT_EQ(clip.sampling_rate, 8000);
  EXPECT_EQ(clip.samples[1].item<float>(), -0.5f);
}

TEST(Audio, CellsOfPlainBinaryAreBytes) {
  const auto bytes = read_file(kSounds / "mono.wav");
  const auto samples = read_audio(kSounds / "mono.wav").samples;
  EXPECT_TRUE(torch::equal(audio_of(Value(bytes), "/nowhere").samples, samples));
  EXPECT_EQ(audio_column_of(Example{{"text", "one"}, {"sound", Value(bytes)}}), "sound");
}

TEST(Audio, BadCellsSayWhatIsWrong) {
  using nlohmann::json;
  for (const auto& cell : {json{{"array", {{1, 2}, {3, 4}}}, {"sampling_rate", 8000}},
                           json{{"array", {1, 2}}, {"sampling_rate", "8000"}},
                           json{{"array", "1 2"}, {"sampling_rate", 8000}},
                           json{{"array", {1, 2}}, {"sampling_rate", -5}},
                           json{{"array", {1, 2}}, {"sampling_rate", uint64_t(1) << 63}}})
    EXPECT_EQ(error_of([&] { audio_of(Value::nested(cell), {}); }), "G-AUDIO-3") << cell;
  AudioOptions options;
  options.sampling_rate = 16000;
  const auto odd = encode_wav({torch::zeros({100}), 999983});
  try {
    decode_audio(odd, "odd.wav", options);
    ADD_FAILURE() << "resampled";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-AUDIO-4");
    EXPECT_EQ(error.message().find("odd.wav: cannot resample"), 0u) << error.message();
  }
}

TEST(Audio, PadsOnTheSideThatTheFileSays) {
  const SoundFolder folder;
  write_file_atomically(folder.path / "preprocessor_config.json",
                        R"({"padding_side": "left", "padding_value": 2.0,
                            "return_attention_mask": true})");
  const auto extractor = Wav2Vec2FeatureExtractor::from_pretrained(folder.path);
  const std::vector<Tensor> clips{torch::ones({1}), torch::ones({3})};
  const auto batch = extractor.pad(clips);
  EXPECT_TRUE(torch::equal(batch["input_values"][0], torch::tensor({2.0f, 2.0f, 1.0f})));
  EXPECT_TRUE(torch::equal(batch["attention_mask"][0], torch::tensor({0, 0, 1})));
  EXPECT_EQ(extractor.to_json()["padding_side"], "left");
  write_file_atomically(folder.path / "preprocessor_config.json", R"({"padding_side": "top"})");
  EXPECT_EQ(error_of([&] { Wav2Vec2FeatureExtractor::from_pretrained(folder.path); }), "G-AUDIO-5");
}

TEST(Audio, MelBandsReachTo8000HertzAtEveryRate) {
  LogMelOptions options;
  options.sampling_rate = 8000;
  const auto bands = mel_filter_bank(options).sum(0);
  EXPECT_EQ(bands[79].item<double>(), 0.0);  // of 7.6 to 8 kHz, where 8000 samples have nothing
  EXPECT_GT(bands[30].item<double>(), 0.0);
}

TEST(Audio, SilenceAndWrongRates) {
  const Wav2Vec2FeatureExtractor extractor;
  EXPECT_TRUE(extractor(torch::zeros({400})).isfinite().all().item<bool>());
  EXPECT_EQ(error_of([&] { extractor(torch::zeros({400}), 8000); }), "G-AUDIO-6");
  EXPECT_EQ(error_of([&] { extractor(torch::zeros({0})); }), "G-AUDIO-6");
}

TEST(Audio, ExtractorFilesGoBothWays) {
  const SoundFolder folder;
  Wav2Vec2FeatureExtractor extractor;
  extractor.do_normalize = false;
  extractor.return_attention_mask = true;
  extractor.sampling_rate = 8000;
  extractor.save_pretrained(folder.path);
  const auto loaded = Wav2Vec2FeatureExtractor::from_pretrained(folder.path);
  EXPECT_EQ(loaded.to_json(), extractor.to_json());
  const std::vector<Tensor> clips{torch::ones({3}), torch::ones({5})};
  const auto batch = loaded.pad(clips, 4);
  EXPECT_EQ(batch["input_values"].sizes(), at::IntArrayRef({2, 8}));
  EXPECT_EQ(batch["attention_mask"].sum().item<int64_t>(), 8);
  EXPECT_EQ(error_of([&] { Wav2Vec2FeatureExtractor::from_pretrained(folder.path / "no"); }),
            "G-AUDIO-5");
}

TEST(AudioRows, FoldersTablesAndSplits) {
  const SoundFolder folder;
  for (const auto* split : {"train", "test"}) {
    fs::create_directories(folder.path / split);
    for (const auto* name : {"mono.wav", "mono.flac"})
      fs::copy_file(kSounds / name, folder.path / split / name);
    std::ofstream(folder.path / split / "metadata.jsonl")
        << R"({"file_name": "mono.flac", "text": "two"})" << "\n"
        << R"({"file_name": "mono.wav", "text": "one"})" << "\n";
  }
  AudioFolderOptions options;
  options.split = "train";
  const auto rows = open_audio_rows(folder.path, options);
  ASSERT_EQ(rows->size(), 2);
  EXPECT_EQ(rows->get(0).at("text").str(), "two");
  EXPECT_EQ(rows->get(1).at("audio").str(), (folder.path / "train/mono.wav").string());

  // Sound files alone: the subfolder is the label.
  fs::remove(folder.path / "train/metadata.jsonl");
  const auto plain = open_audio_rows(folder.path / "train");
  EXPECT_EQ(plain->size(), 2);
  fs::remove(folder.path / "test/metadata.jsonl");
  const auto labelled = open_audio_rows(folder.path);
  EXPECT_EQ(labelled->get(0).at("label").str(), "test");
  fs::create_directories(folder.path / "none");
  EXPECT_EQ(error_of([&] { open_audio_rows(folder.path / "none"); }), "G-AUDIO-9");
  options.split = "dev";
  try {
    open_audio_rows(folder.path, options);
    ADD_FAILURE() << "there is no split dev";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("no split 'dev'"), std::string::npos) << error.message();
    EXPECT_EQ(error.advice(), "Its subfolders are none, test, train.");
  }
}

TEST(AudioRows, DamagedClipsAreLeftOutAndCounted) {
  const SoundFolder folder;
  const auto flac = read_file(kSounds / "mono.flac");
  fs::copy_file(kSounds / "mono.wav", folder.path / "a.wav");
  write_file_atomically(folder.path / "b.flac", flac.substr(0, flac.size() / 2));
  fs::copy_file(kSounds / "mono.flac", folder.path / "c.flac");
  AudioDecodeOptions options;
  EXPECT_EQ(error_of([&] { decode_rows(open_audio_rows(folder.path), options); }), "G-AUDIO-1");
  options.skip_bad_rows = 1;
  for (const int64_t limit : {int64_t{0}, int64_t{1} << 30}) {
    options.memory_limit = limit;
    const auto rows = decode_rows(open_audio_rows(folder.path), options);
    ASSERT_EQ(rows->size(), 2);
    EXPECT_EQ(rows->skipped_rows(), 1);
    EXPECT_EQ(rows->length(1), 2000);
    EXPECT_EQ(rows->get(1).at("audio").tensor().numel(), 2000);
  }
}

TEST(AudioRows, EveryKindOfDamageIsNamed) {
  const SoundFolder folder;
  const auto flac = read_file(kSounds / "mono.flac"), wav = read_file(kSounds / "mono.wav");
  auto torn = flac;
  for (size_t i = torn.size() / 2; i < torn.size() / 2 + 64; ++i) torn[i] = '\x55';
  const std::map<std::string, std::string> files = {{"cut.flac", flac.substr(0, 1000)},
                                                    {"empty.wav", ""},
                                                    {"header.wav", wav.substr(0, 30)},
                                                    {"torn.flac", torn}};
  for (const auto& [name, content] : files) write_file_atomically(folder.path / name, content);
  AudioDecodeOptions options;
  options.skip_bad_rows = int64_t(files.size());
  for (const auto& [name, content] : files) try {
      decode_audio(content, name);
      ADD_FAILURE() << name << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "G-AUDIO-1") << name;
      EXPECT_EQ(error.message().find(name), 0u) << error.message();
    }
  EXPECT_EQ(decode_rows(open_audio_rows(folder.path), options)->skipped_rows(), 4);
  options.skip_bad_rows = 3;
  EXPECT_EQ(error_of([&] { decode_rows(open_audio_rows(folder.path), options); }), "G-AUDIO-1");
  try {
    decode_rows(from_examples({Example{{"audio", (folder.path / "empty.wav").string()}}}), {});
    ADD_FAILURE() << "an empty file was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.message().find("row 0: "), 0u) << error.message();
  }
  // A WAV that was cut is as long as what is left of it, as with Python's soundfile.
  EXPECT_LT(decode_audio(wav.substr(0, 2000), "cut.wav").samples.numel(),
            decode_audio(wav, "whole.wav").samples.numel());
}

TEST(AudioInfo, ReadsHeaders) {
  const auto info = audio_info(read_file(kSounds / "stereo24.flac"), "a");
  const auto clip = read_audio(kSounds / "stereo24.flac");
  EXPECT_EQ(info.format, "FLAC");
  EXPECT_EQ(info.channels, 2);
  EXPECT_EQ(info.sampling_rate, clip.sampling_rate);
  EXPECT_EQ(info.frames, clip.samples.numel());
  EXPECT_EQ(audio_info(read_file(kSounds / "mono.wav"), "a").format, "WAV");
  EXPECT_EQ(error_of([] { audio_info("no sound", "a"); }), "G-AUDIO-1");
}

TEST(AudioInfo, ALengthThatTheHeaderDoesNotSayIsZero) {
  auto flac = read_file(kSounds / "mono.flac");
  const auto whole = decode_audio(flac, "a").samples;
  flac[21] = char(flac[21] & 0xf0);  // 36 bits: the number of samples
  std::fill_n(flac.begin() + 22, 4, '\0');
  EXPECT_EQ(audio_info(flac, "a").frames, 0);
  EXPECT_TRUE(torch::equal(decode_audio(flac, "a").samples, whole));
}

TEST(AudioShow, DescribesClipsInTextAndAsAPage) {
  const SoundFolder folder;
  fs::copy_file(kSounds / "mono.wav", folder.path / "a.wav");
  fs::copy_file(kSounds / "stereo24.flac", folder.path / "b & <co>.flac");
  write_file_atomically(folder.path / "c.wav", "broken");
  write_file_atomically(folder.path / "d.wav", encode_wav({torch::zeros({800}), 8000}));
  std::ofstream(folder.path / "metadata.jsonl")
      << R"({"file_name": "a.wav", "text": "one <two>"})" << "\n"
      << R"({"file_name": "b & <co>.flac", "text": "two"})" << "\n"
      << R"({"file_name": "c.wav", "text": "three"})" << "\n"
      << R"({"file_name": "d.wav", "text": "four"})" << "\n";
  ASSERT_TRUE(is_audio_folder(folder.path));
  EXPECT_FALSE(is_audio_folder(kSounds.parent_path().parent_path() / "text"));
  const auto rows = open_audio_rows(folder.path);
  EXPECT_EQ(audio_column_of(rows->get(0)), "audio");
  const auto report = audio_show(*rows, {.rows = 5});
  EXPECT_EQ(report["rows"], 4);
  EXPECT_EQ(report["unreadable"], 1);
  EXPECT_EQ(report["formats"]["WAV"], 2);
  EXPECT_EQ(report["channels"]["2"], 1);
  EXPECT_NEAR(report["seconds"]["total"].get<double>(), 0.35, 1e-3);
  EXPECT_EQ(report["first_rows"][3]["peak"], 0.0);
  const auto text = format_audio_show(report);
  EXPECT_NE(text.find("stereo FLAC"), std::string::npos) << text;
  EXPECT_NE(text.find("mono WAV, silent"), std::string::npos) << text;
  EXPECT_NE(text.find("text: one <two>"), std::string::npos) << text;
  EXPECT_NE(text.find("c.wav: it is not a sound file"), std::string::npos) << text;
  const auto page = audio_show_html(*rows, report, "a<b");
  EXPECT_NE(page.find("<h1>a&lt;b</h1>"), std::string::npos);
  EXPECT_NE(page.find("one &lt;two&gt;"), std::string::npos);
  EXPECT_NE(page.find("data:audio/wav;base64,UklGR"), std::string::npos);
  EXPECT_EQ(page.find("<co>"), std::string::npos);
}

TEST(EncodeWav, GivesBackTheSamples) {
  const AudioClip clip{torch::tensor({0.0f, 0.5f, -0.25f, 1.0f, -1.0f, 3.0f}), 8000};
  const auto read = decode_audio(encode_wav(clip), "x.wav");
  EXPECT_EQ(read.sampling_rate, 8000);
  EXPECT_LE(largest_difference(read.samples, clip.samples.clamp(-1, 1)), 1e-4);
}

TEST(AudioRows, CollatorPadsSoundAndLabelsApart) {
  const DataCollatorCTCWithPadding collator({});
  const auto batch =
      collator({Example{{"input_values", torch::ones({3})}, {"labels", Value::Ints{1, 2, 3}}},
                Example{{"input_values", torch::ones({5})}, {"labels", Value::Ints{4}}}});
  EXPECT_EQ(batch["input_values"].sizes(), at::IntArrayRef({2, 5}));
  EXPECT_EQ(batch["input_values"].sum().item<double>(), 8);
  EXPECT_FALSE(batch.contains("attention_mask"));
  EXPECT_EQ(batch["labels"][1][2].item<int64_t>(), -100);
}

TEST(Audio, AFileThatUnpacksToFarMoreThanItIsIsRefused) {
  // 20 million zeros in 69 KB
  const auto silence = read_file(kSounds / "packed/silence.flac");
  try {
    decode_audio(silence, "silence.flac");
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-AUDIO-2");
    EXPECT_NE(std::string(error.what()).find("bytes hold more than"), std::string::npos)
        << error.what();
  }
}

TEST(Audio, ManyRatesDoNotPileUp) {
  const auto memory = [] {
    std::ifstream file("/proc/self/statm");
    int64_t all = 0, resident = 0;
    file >> all >> resident;
    return resident * 4096;
  };
  const auto sound = torch::zeros({100});
  resample(sound, 15991, 16000);
  const auto before = memory();
  // Each of these filters has about 16,000 phases with 16 taps.
  for (int64_t rate = 15000; rate < 15600; ++rate)
    if (std::gcd(rate, int64_t{16000}) == 1) resample(sound, rate, 16000);
  EXPECT_LT(memory() - before, int64_t{200} << 20);
}

}  // namespace
}  // namespace gradus
