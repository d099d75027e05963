// bench_generation evaluate|train FOLDER ROWS.json: one line of JSON for benchmarks/generation.py.
//   evaluate   seconds of an evaluation that generates with 4 beams, and the sum of all ids
//   train      milliseconds of a training step, the median
#include <fmt/format.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>
#include <gradus/models/auto_model.h>
#include <gradus/trainers/seq2seq.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

namespace {

using Clock = std::chrono::steady_clock;

std::shared_ptr<gradus::Dataset> rows_of(const std::string& file) {
  std::vector<gradus::Example> examples;
  for (const auto& row : gradus::read_json(file)) {
    auto& example = examples.emplace_back();
    for (const auto& [name, value] : row.items())
      example.set(name, value.get<std::vector<int64_t>>());
  }
  return gradus::from_examples(std::move(examples));
}

gradus::Seq2SeqTrainer trainer_of(const std::string& folder, const std::string& file) {
  const auto rows = rows_of(file);
  gradus::Seq2SeqTrainingArguments args;
  args.output_dir = (std::filesystem::temp_directory_path() / "gradus_bench_generation").string();
  args.per_device_train_batch_size = args.per_device_eval_batch_size = 16;
  args.max_steps = 30;
  args.disable_tqdm = true;
  args.save_strategy = "no";
  args.use_cpu = true;
  args.predict_with_generate = true;
  args.generation_max_length = 48;
  args.generation_num_beams = 4;
  return gradus::Seq2SeqTrainer({.model = gradus::AutoModelForSeq2SeqLM::from_pretrained(folder),
                                 .args = args,
                                 .data_collator = gradus::default_data_collator,
                                 .train_dataset = rows,
                                 .eval_dataset = rows,
                                 .compute_metrics = [](const gradus::EvalPrediction& p) {
                                   return gradus::Metrics{
                                       {"sum", p.prediction_parts.at(0).sum().item<double>()}};
                                 }});
}

double median_step(gradus::Seq2SeqTrainer& trainer) {
  std::vector<double> steps;
  auto before = Clock::now();
  trainer.on(gradus::Event::step_begin, [&](const gradus::CallbackContext&,
                                            gradus::TrainerControl&) { before = Clock::now(); });
  trainer.on(gradus::Event::step_end, [&](const gradus::CallbackContext&, gradus::TrainerControl&) {
    steps.push_back(std::chrono::duration<double>(Clock::now() - before).count());
  });
  trainer.train();
  std::sort(steps.begin(), steps.end());
  return steps[steps.size() / 2] * 1e3;
}

class Silent : public gradus::LogSink {
  void message(gradus::LogLevel, std::string_view) override {}
  void print(std::string_view) override {}
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: bench_generation evaluate|train FOLDER ROWS.json\n";
    return 2;
  }
  gradus::set_log_sink(std::make_shared<Silent>());
  auto trainer = trainer_of(argv[2], argv[3]);
  if (std::string(argv[1]) == "train") {
    std::cout << fmt::format("{{\"milliseconds\": {:.3f}}}\n", median_step(trainer));
    return 0;
  }
  const auto begin = Clock::now();
  const auto metrics = trainer.evaluate();
  std::cout << fmt::format("{{\"seconds\": {:.4f}, \"sum\": {}}}\n",
                           std::chrono::duration<double>(Clock::now() - begin).count(),
                           metrics.at("eval_sum"));
}
