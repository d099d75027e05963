// bench_loader MODE: one line of JSON for benchmarks/loader.py.
//   padding    batches per second with dynamic padding on 200,000 tokenised rows in memory, 2
//   workers stream     seconds to go on with an iterable data set at batch 5,000, first batch
//   included position   seconds to go to batch 1,000,000 of a shuffled map-style data set, first
//   batch included
#include <fmt/format.h>
#include <gradus/data/collators.h>
#include <gradus/data/data_loader.h>
#include <gradus/data/streams.h>
#include <gradus/data/tokenizer_like.h>

#include <chrono>
#include <iostream>
#include <random>

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Tokens : gradus::TokenizerLike {
  std::optional<int64_t> pad_token_id() const override { return 0; }
  std::optional<int64_t> mask_token_id() const override { return std::nullopt; }
  int64_t full_vocab_size() const override { return 30000; }
  std::vector<int64_t> all_special_ids() const override { return {0}; }
};

std::shared_ptr<gradus::Dataset> tokenised_rows() {
  std::mt19937 random(0);
  std::vector<gradus::Example> rows(200'000);
  for (auto& row : rows) {
    std::vector<int64_t> ids(16 + random() % 113);
    for (auto& id : ids) id = 1 + int64_t(random() % 29999);
    row.set("attention_mask", std::vector<int64_t>(ids.size(), 1));
    row.set("input_ids", std::move(ids));
  }
  return gradus::from_examples(std::move(rows));
}

gradus::DataCollator padding() {
  return gradus::DataCollatorWithPadding({.tokenizer = std::make_shared<Tokens>()});
}

double batches_per_second() {
  const auto rows = tokenised_rows();
  const gradus::DataLoader loader({.dataset = rows,
                                   .batch_size = 32,
                                   .sampler = gradus::random_sampler(rows->size(), 0),
                                   .collator = padding(),
                                   .num_workers = 2});
  auto batches = loader.iterate(0);
  for (int i = 0; i < 100; ++i) batches.next();
  const auto start = Clock::now();
  int64_t count = 0;
  while (batches.next()) ++count;
  return double(count) / seconds_since(start);
}

double go_on_with_a_stream() {
  const gradus::DataLoader loader(
      {.dataset = gradus::as_stream(tokenised_rows()), .batch_size = 32, .collator = padding()});
  nlohmann::json state;
  {
    auto before = loader.iterate(0);
    for (int i = 0; i < 5000; ++i) before.next();
    state = before.state();
  }
  const auto start = Clock::now();
  auto after = loader.iterate(0, 5000, state);
  after.next();
  return seconds_since(start);
}

double go_to_a_position() {
  const auto rows = gradus::from_tensors({{"x", torch::arange(8'000'800, torch::kFloat)}});
  const gradus::DataLoader loader(
      {.dataset = rows, .batch_size = 8, .sampler = gradus::random_sampler(rows->size(), 42)});
  const auto start = Clock::now();
  auto batches = loader.iterate(0, 1'000'000);
  batches.next();
  return seconds_since(start);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "padding")
    std::cout << fmt::format("{{\"value\": {:.1f}}}\n", batches_per_second());
  else if (mode == "stream")
    std::cout << fmt::format("{{\"value\": {:.6f}}}\n", go_on_with_a_stream());
  else if (mode == "position")
    std::cout << fmt::format("{{\"value\": {:.6f}}}\n", go_to_a_position());
  else
    return std::cerr << "usage: bench_loader padding|stream|position\n", 2;
}
