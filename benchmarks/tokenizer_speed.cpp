// bench_tokenizer_speed FOLDER TEXT THREADS REPEATS: lines of a file through
// Tokenizer::encode_batch. Prints one JSON object: tokens, and the best tokens per second with all
// details and with ids only.
#include <gradus/core/files.h>
#include <gradus/text/tokenizer.h>

#include <chrono>
#include <iostream>
#include <sstream>

namespace {

constexpr size_t kBatch = 1000;  // as `datasets.map(batched=True)` hands them over

struct Measured {
  int64_t tokens = 0;
  double best_seconds = 1e300;
};

Measured measure(const gradus::Tokenizer& tokenizer, const std::vector<std::string>& lines,
                 int64_t threads, int repeats, bool ids_only) {
  Measured measured;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    measured.tokens = 0;
    for (size_t begin = 0; begin < lines.size(); begin += kBatch) {
      const std::span<const std::string> batch(lines.data() + begin,
                                               std::min(kBatch, lines.size() - begin));
      for (const auto& encoding :
           tokenizer.encode_batch(batch, {.ids_only = ids_only}, {}, threads))
        measured.tokens += encoding.size();
    }
    measured.best_seconds =
        std::min(measured.best_seconds,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return measured;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5)
    return std::cerr << "usage: bench_tokenizer_speed FOLDER TEXT THREADS REPEATS\n", 2;
  const auto tokenizer = gradus::Tokenizer::from_pretrained(argv[1]);
  std::vector<std::string> lines;
  std::istringstream text(gradus::read_file(argv[2]));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  const auto threads = std::stoll(argv[3]);
  const auto repeats = std::stoi(argv[4]);
  const auto full = measure(*tokenizer, lines, threads, repeats, false);
  const auto lean = measure(*tokenizer, lines, threads, repeats, true);
  std::cout << nlohmann::json{{"tokens", full.tokens},
                              {"full", full.tokens / full.best_seconds},
                              {"ids_only", lean.tokens / lean.best_seconds}}
            << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
