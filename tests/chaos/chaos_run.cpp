// chaos_run KIND FOLDER [STEPS]: one of the runs that tests/chaos disturbs, for trainers that the
// command line does not have. It goes on from the newest good checkpoint in FOLDER and says on
// stderr which one that is. The kinds: `trainer` (dropout, fp16, an average, early stopping),
// `seq2seq` (a T5), `hooks` and `functional`. Exit code 1 and the message when gradus reports an
// error, 128 + the signal when one stopped the run.
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/data/collators.h>
#include <gradus/formats/torch_file.h>
#include <gradus/functional/trainer.h>
#include <gradus/hooks/checkpoint_hook.h>
#include <gradus/hooks/ema_hook.h>
#include <gradus/hooks/optimization_hooks.h>
#include <gradus/hooks/trainer.h>
#include <gradus/models/auto_model.h>
#include <gradus/optim/adamw.h>
#include <gradus/trainers/seq2seq.h>
#include <signal.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>

#include <charconv>
#include <iostream>

#include "../integration/dropout_run.h"

namespace gradus::testing {
namespace {

namespace fs = std::filesystem;
namespace fn = gradus::functional;
constexpr int64_t kSaveSteps = 3, kKept = 3;

int train(Trainer& trainer, const std::shared_ptr<InterruptCallback>& interrupt) {
  trainer.train(Resume::last());
  if (interrupt->received() != 0) return 128 + interrupt->received();
  trainer.save_model();
  return 0;
}

int run_trainer(const fs::path& folder, int64_t steps) {
  auto args = dropout_arguments(folder.string(), kSaveSteps);
  args.max_steps = steps;
  args.save_total_limit = kKept;
  args.eval_steps = 2 * kSaveSteps;
  auto options = dropout_run(std::move(args));
  const auto interrupt = std::make_shared<InterruptCallback>();
  options.callbacks.push_back(interrupt);
  Trainer trainer(std::move(options));
  return train(trainer, interrupt);
}

std::shared_ptr<Dataset> sentences(int64_t count) {
  std::vector<Example> rows;
  for (int64_t row = 0; row < count; ++row) {
    std::vector<int64_t> words, answer;
    for (int64_t i = 0; i < 6; ++i) words.push_back(2 + (row * 7 + i * 3) % 30);
    for (int64_t i = 0; i < 4; ++i) answer.push_back(words[size_t(5 - i)]);
    rows.emplace_back();
    rows.back().set("input_ids", words);
    rows.back().set("labels", answer);
  }
  return from_examples(std::move(rows));
}

int run_seq2seq(const fs::path& folder, int64_t steps) {
  at::set_num_threads(1);
  torch::manual_seed(3);
  const nlohmann::json config = {
      {"model_type", "t5"}, {"vocab_size", 40},    {"d_model", 16},
      {"d_kv", 4},          {"d_ff", 24},          {"num_layers", 1},
      {"num_heads", 2},     {"dropout_rate", 0.1}, {"decoder_start_token_id", 0},
      {"pad_token_id", 0},  {"eos_token_id", 1}};
  const auto interrupt = std::make_shared<InterruptCallback>();
  Seq2SeqTrainer trainer({.model = model_from_config(ModelTask::seq2seq_lm, config),
                          .args = {.output_dir = folder.string(),
                                   .per_device_train_batch_size = 4,
                                   .max_steps = steps,
                                   .learning_rate = 1e-3,
                                   .logging_steps = 2,
                                   .disable_tqdm = true,
                                   .eval_strategy = "steps",
                                   .eval_steps = 2 * kSaveSteps,
                                   .save_steps = kSaveSteps,
                                   .save_total_limit = kKept,
                                   .use_cpu = true,
                                   .predict_with_generate = true,
                                   .generation_max_length = 6},
                          .data_collator = default_data_collator,
                          .train_dataset = sentences(30),
                          .eval_dataset = sentences(6),
                          .callbacks = {interrupt}});
  return train(trainer, interrupt);
}

// The number between `before` and `after` in a name.
std::optional<int64_t> number_in(std::string_view name, std::string_view before,
                                 std::string_view after) {
  if (!name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
  name = name.substr(before.size(), name.size() - before.size() - after.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

// Names of checkpoints of trainers that leave the choice to their users, newest first.
std::vector<fs::path> newest_first(const fs::path& folder, const char* before, const char* after) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (const auto step = number_in(entry.path().filename().string(), before, after))
      found.emplace_back(-*step, entry.path());
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

// The newest checkpoint that `read` accepts; none when there is none. A disk that cannot be read is
// no reason to take an older one.
template <class F>
std::optional<fs::path> newest_good(const std::vector<fs::path>& checkpoints, F read) {
  for (const auto& path : checkpoints) {
    try {
      read(path);
      std::cerr << "Continuing from " << path.string() << ":\n";
      return path;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::io) throw;
      std::cerr << "not used: " << error.what() << '\n';
    }
  }
  return std::nullopt;
}

int run_hooks(const fs::path& folder, int64_t steps) {
  const auto from = newest_good(newest_first(folder, "checkpoint_step_", ".pt"), read_torch_file);
  torch::manual_seed(5);
  const auto x = torch::randn({60, 8});
  const auto rows = std::vector<std::pair<std::string, torch::Tensor>>{
      {"x", x}, {"y", x.slice(1, 0, 3).argmax(1)}};
  auto net = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(8, 16),
                                                         torch::nn::ReLU(), torch::nn::Dropout(0.3),
                                                         torch::nn::Linear(16, 3));
  const auto step = [&](const Batch& batch, hooks::Trainer&) -> hooks::Result {
    return {{"loss", torch::cross_entropy_loss(net->forward(batch["x"]), batch["y"])}};
  };
  hooks::Trainer trainer(
      {.model = net,
       .train_step = step,
       .train_dl = tensor_loader(rows, {.batch_size = 10, .shuffle = true, .seed = 1}),
       .optim = std::make_shared<AdamW>(net->parameters(), AdamWOptions{.lr = 1e-2}),
       .epochs = (steps + 5) / 6,
       .hooks = {std::make_shared<hooks::EMAHook>(0.9), std::make_shared<hooks::GradClipHook>(1.0),
                 std::make_shared<hooks::CheckpointHook>(
                     hooks::CheckpointOptions{.save_dir = folder,
                                              .save_every_steps = kSaveSteps,
                                              .keep_last = kKept,
                                              .resume_path = from})},
       .device = torch::kCPU});
  try {
    trainer.fit();
  } catch (const hooks::Cancelled&) {
    return 128 + SIGINT;
  }
  return 0;
}

int run_functional(const fs::path& folder, int64_t steps) {
  const auto from = newest_good(newest_first(folder, "state-e0-s", ""), [](const fs::path& path) {
    for (const auto* name : {"flax_model.msgpack", "opt_state.msgpack", "training_state.json"})
      if (!fs::exists(path / name))
        throw Error("T-1", ErrorKind::checkpoint, (path / name).string() + " is missing", "");
    read_flax_msgpack(path / "flax_model.msgpack");
    read_flax_msgpack(path / "opt_state.msgpack");
    read_json(path / "training_state.json");
  });
  torch::manual_seed(5);
  const auto x = torch::randn({int64_t{8} * steps, 6});
  const auto data = from_tensors({{"x", x}, {"y", x.sum(1, true)}});
  const auto model =
      wrap(torch::nn::Linear(6, 1),
           [](torch::nn::LinearImpl& net, const Batch& batch) { return net.forward(batch["x"]); });
  const fn::Args args{.logging_steps = 1000,
                      .save_steps = kSaveSteps,
                      .batch_size_per_device = 8,
                      .max_epochs = 1,
                      .lr = 0.02,
                      .warmup_steps = 3,
                      .save_dir = "state",
                      .base_dir = folder.string()};
  fn::Trainer trainer({.args = args, .show_progress = false});
  const auto loss = [](const torch::Tensor& prediction, const Batch& batch) {
    return torch::mse_loss(prediction, batch["y"]);
  };
  make_directory(folder);
  auto state = trainer.create_state(model, fn::build_tx(args, steps), steps,
                                    {.loss_fn = loss, .ckpt_dir = from});
  state = trainer.train(state, data, data);
  trainer.save_checkpoint(folder / "final", state);
  return 0;
}

int run(const std::string& kind, const fs::path& folder, int64_t steps) {
  at::set_num_threads(1);
  if (kind == "trainer") return run_trainer(folder, steps);
  if (kind == "seq2seq") return run_seq2seq(folder, steps);
  if (kind == "hooks") return run_hooks(folder, steps);
  if (kind == "functional") return run_functional(folder, steps);
  std::cerr << "chaos_run: there is no kind " << kind << '\n';
  return 2;
}

}  // namespace
}  // namespace gradus::testing

int main(int argc, char** argv) try {
  if (argc < 3) return std::cerr << "usage: chaos_run KIND FOLDER [STEPS]\n", 2;
  return gradus::testing::run(argv[1], argv[2], argc > 3 ? std::stoll(argv[3]) : 12);
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
