// bench_gpt_step MODE: one line of JSON for benchmarks/gpt_step.py and ddp_step.py. The model is a
// GPT-2 of 4 layers, 256 wide, trained on 8 rows of 128 tokens.
//
//   trainer STEPS [VOCABULARY]
//     gradus::Trainer: tokens per second, peak resident memory, last loss. TRACE=FILE writes what
//     torch's profiler saw of one step after the warm-up.
//
//   onednn STEPS [VOCABULARY]
//     the same with --cpu_matmul onednn.
//
//   plain STEPS [VOCABULARY]
//     a hand-written loop over the same model with the same work: collate, clip, schedule, fused
//     AdamW.
//
//   load FILE
//     reads a safetensors file: seconds, bytes that became resident and private while doing so.
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <gradus/config/launch_environment.h>
#include <gradus/core/log.h>
#include <gradus/data/dataset.h>
#include <gradus/device/runtime.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/auto_model.h>
#include <gradus/train/trainer.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <set>

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr int64_t kRows = 512, kBatch = 8, kTokens = 128, kWarmUp = 5;
constexpr double kRate = 5e-4;

/// A line of /proc/self/status or smaps_rollup, in MiB.
double memory(const char* file, const std::string& name) {
  std::ifstream in(file);
  std::string word;
  while (in >> word)
    if (word == name + ":") {
      double kilobytes = 0;
      in >> kilobytes;
      return kilobytes / 1024;
    }
  return 0;
}

std::shared_ptr<gradus::PreTrainedModel> make_model(int64_t vocabulary) {
  torch::manual_seed(0);
  return gradus::AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                                    {"vocab_size", vocabulary},
                                                    {"n_positions", kTokens},
                                                    {"n_embd", 256},
                                                    {"n_layer", 4},
                                                    {"n_head", 4},
                                                    {"bos_token_id", 0},
                                                    {"eos_token_id", 0}});
}

std::shared_ptr<gradus::Dataset> make_rows(int64_t vocabulary) {
  const auto ids = torch::randint(0, vocabulary, {kRows, kTokens}, torch::kLong);
  return gradus::from_tensors({{"input_ids", ids}, {"labels", ids}});
}

struct Speed {
  double tokens_per_second, loss;
};

void trace_one_step(gradus::Trainer& trainer) {
  namespace profiler = torch::autograd::profiler;
  const char* file = std::getenv("TRACE");
  if (file == nullptr) return;
  trainer.on(gradus::Event::step_begin,
             [](const gradus::CallbackContext& at, gradus::TrainerControl&) {
               if (at.state.global_step != kWarmUp) return;
               const std::set kinds{torch::profiler::impl::ActivityType::CPU};
               const torch::profiler::impl::ProfilerConfig config(
                   torch::profiler::impl::ProfilerState::KINETO);
               profiler::prepareProfiler(config, kinds);
               profiler::enableProfiler(config, kinds);
             });
  trainer.on(gradus::Event::step_end,
             [file](const gradus::CallbackContext& at, gradus::TrainerControl&) {
               if (at.state.global_step == kWarmUp + 1) profiler::disableProfiler()->save(file);
             });
}

Speed run_trainer(int64_t steps, int64_t vocabulary, const char* cpu_matmul) {
  gradus::TrainingArguments args{.output_dir = "gradus_bench_gpt",
                                 .per_device_train_batch_size = kBatch,
                                 .max_steps = steps,
                                 .learning_rate = kRate,
                                 .weight_decay = 0.01,
                                 .logging_steps = 10,
                                 .disable_tqdm = true,
                                 .save_strategy = "no",
                                 .use_cpu = true,
                                 .cpu_matmul = cpu_matmul};
  gradus::Trainer trainer(
      {.model = make_model(vocabulary), .args = args, .train_dataset = make_rows(vocabulary)});
  Clock::time_point begin, end;
  trainer.on(gradus::Event::step_end,
             [&](const gradus::CallbackContext& at, gradus::TrainerControl&) {
               (at.state.global_step == kWarmUp ? begin : end) = Clock::now();
             });
  trace_one_step(trainer);
  const auto result = trainer.train();
  return {double((steps - kWarmUp) * kBatch * kTokens) /
              std::chrono::duration<double>(end - begin).count(),
          result.training_loss};
}

Speed run_plain(int64_t steps, int64_t vocabulary) {
  const auto model = make_model(vocabulary);
  const auto rows = make_rows(vocabulary);
  model->train();
  std::vector<torch::Tensor> decayed, others;
  for (const auto& [name, p] : gradus::trainable_parameters(*model))
    (p.dim() > 1 ? decayed : others).push_back(p);
  struct Group {
    std::vector<torch::Tensor> params, m, v, counts;
    double decay;
  };
  std::vector<Group> groups;
  for (auto [params, decay] : {std::pair(decayed, 0.01), std::pair(others, 0.0)}) {
    Group group{params, {}, {}, {}, decay};
    for (const auto& p : params) {
      group.m.push_back(torch::zeros_like(p).detach());
      group.v.push_back(torch::zeros_like(p).detach());
      group.counts.push_back(torch::zeros({}));
    }
    groups.push_back(std::move(group));
  }
  auto total = torch::zeros({});
  Clock::time_point begin;
  torch::Tensor order;
  for (int64_t step = 0; step < steps; ++step) {
    if (step == kWarmUp) begin = Clock::now();
    if (step % (kRows / kBatch) == 0) order = torch::randperm(kRows);
    std::vector<torch::Tensor> ids, labels;
    for (int64_t i = 0; i < kBatch; ++i) {
      const auto row =
          rows->get(order.const_data_ptr<int64_t>()[step % (kRows / kBatch) * kBatch + i]);
      ids.push_back(row.at("input_ids").to_tensor());
      labels.push_back(row.at("labels").to_tensor());
    }
    const auto loss =
        model->forward({{"input_ids", torch::stack(ids)}, {"labels", torch::stack(labels)}}).loss();
    loss.backward();
    const torch::NoGradGuard no_grad;
    total += loss.detach();
    std::vector<torch::Tensor> grads;
    for (const auto& group : groups)
      for (const auto& p : group.params) grads.push_back(p.grad());
    const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(grads, 2)), 2);
    at::_foreach_mul_(grads, (1.0 / (norm + 1e-6)).clamp_max(1.0));
    const double lr = kRate * double(steps - step) / double(steps);
    size_t at = 0;
    for (auto& group : groups) {
      const std::vector<torch::Tensor> own(grads.begin() + int64_t(at),
                                           grads.begin() + int64_t(at + group.params.size()));
      at += group.params.size();
      for (auto& count : group.counts) count += 1;
      at::_fused_adamw_(group.params, own, group.m, group.v, {}, group.counts, lr, 0.9, 0.999,
                        group.decay, 1e-8, false, false, std::nullopt, std::nullopt);
      for (auto& p : group.params) p.mutable_grad().reset();
    }
  }
  return {double((steps - kWarmUp) * kBatch * kTokens) / seconds_since(begin),
          total.item<double>() / double(steps)};
}

void load(const std::string& file) {
  const double resident = memory("/proc/self/status", "VmRSS"),
               own = memory("/proc/self/status", "RssAnon");
  const auto begin = Clock::now();
  const auto tensors = gradus::read_safetensors(file);
  const double seconds = seconds_since(begin);
  std::cout << fmt::format("{{\"seconds\": {:.6f}, \"resident\": {:.3f}, \"private\": {:.3f}}}\n",
                           seconds, memory("/proc/self/status", "VmRSS") - resident,
                           memory("/proc/self/status", "RssAnon") - own);
}

class Silent : public gradus::LogSink {
  void message(gradus::LogLevel, std::string_view) override {}
  void print(std::string_view) override {}
};

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  gradus::set_log_sink(std::make_shared<Silent>());
  if (mode == "load") {
    load(argv[2]);
  } else if (mode == "trainer" || mode == "onednn" || mode == "plain") {
    const int64_t steps = std::stoll(argv[2]), vocabulary = argc > 3 ? std::stoll(argv[3]) : 8192;
    const auto speed = mode == "plain"
                           ? run_plain(steps, vocabulary)
                           : run_trainer(steps, vocabulary, mode == "onednn" ? "onednn" : "torch");
    if (gradus::launch_environment().rank != 0) return 0;
    std::cout << fmt::format("{{\"tokens\": {:.1f}, \"peak\": {:.1f}, \"loss\": {:.6f}}}\n",
                             speed.tokens_per_second, memory("/proc/self/status", "VmHWM"),
                             speed.loss);
  } else {
    std::cerr << "usage: bench_gpt_step trainer|onednn|plain STEPS [VOCABULARY] | load FILE\n";
    return 2;
  }
}
