// bench_images FOLDER scaled|exact train|eval: one line of JSON for benchmarks/images.py: images
// per second from a folder of files to batches of 32, in one thread.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gradus/core/memory.h>
#include <gradus/data/data_loader.h>
#include <gradus/vision/image_dataset.h>

#include <ctime>
#include <iostream>
#include <numeric>

int main(int count, char** words) {
  if (count != 4) {
    std::cerr << "usage: bench_images FOLDER scaled|exact train|eval\n";
    return 2;
  }
  gradus::keep_freed_memory();  // as gradus train does
  at::set_num_threads(1);
  const auto source = gradus::image_folders({words[1]}).front();
  std::vector<int64_t> rows(static_cast<size_t>(source->size()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const gradus::ImageProcessor processor(
      nlohmann::json{{"size", {{"height", 224}, {"width", 224}}}});
  auto transform = gradus::image_transform(processor, std::string_view(words[3]) == "train");
  transform.scaled_decoding = std::string_view(words[2]) == "scaled";
  const gradus::DataLoader loader(
      {.dataset = gradus::image_dataset(source, rows, transform), .batch_size = 32});
  double best = 0;
  for (int64_t pass = 0; pass < 3; ++pass) {
    const auto start = std::clock();
    auto batches = loader.iterate(pass);
    while (batches.next()) {
    }
    const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
    best = std::max(best, double(rows.size()) / seconds);
  }
  std::cout << fmt::format("{{\"value\": {:.1f}}}\n", best);
}
