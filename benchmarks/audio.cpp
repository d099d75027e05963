// bench_audio FOLDER: one line of JSON for benchmarks/audio.py: clips per second of CPU time from a
// folder of FLAC files to padded batches of 8, in one thread.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gradus/audio/audio_dataset.h>
#include <gradus/core/memory.h>
#include <gradus/data/data_loader.h>

#include <ctime>
#include <iostream>

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: bench_audio FOLDER\n";
    return 2;
  }
  gradus::keep_freed_memory();  // as gradus train does
  at::set_num_threads(1);
  const gradus::Wav2Vec2FeatureExtractor extractor;
  const auto files = gradus::open_audio_rows(words[1]);
  const auto clips = files->map([&](const gradus::Example& row) {
    gradus::AudioOptions options;
    options.sampling_rate = extractor.sampling_rate;
    const auto clip = gradus::audio_of(row.at("audio"), {}, options);
    return gradus::Example{{"input_values", extractor(clip.samples, clip.sampling_rate)}};
  });
  const gradus::DataLoader loader(
      {.dataset = clips,
       .batch_size = 8,
       .collator = gradus::DataCollatorCTCWithPadding({.feature_extractor = extractor})});
  double best = 0;
  for (int64_t pass = 0; pass < 3; ++pass) {
    const auto start = std::clock();
    auto batches = loader.iterate(pass);
    while (batches.next()) {
    }
    const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
    best = std::max(best, double(files->size()) / seconds);
  }
  std::cout << fmt::format("{{\"value\": {:.1f}}}\n", best);
}
