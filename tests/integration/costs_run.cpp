// costs_run [flags]: what sharding.py counts: the bytes of tensors that a process holds, and the
// bytes that it sends. The model is 64 blocks with almost nothing beside them.
//
// Writes OUTPUT_DIR/costs-RANK.json: bytes of `parameters`, `held` after a step, `before_step` with
// gradients, `peak` in a step, `sent` in a step, all without what was there before the model.
#include <c10/core/CPUAllocator.h>
#include <dirent.h>
#include <gradus/gradus.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <iostream>

namespace {

std::atomic<int64_t> live = 0, peak = 0;

// Counts what tensors take.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{usual_->allocate(bytes), int64_t(bytes)};
    const auto now = live += int64_t(bytes);
    for (auto most = peak.load(); now > most && !peak.compare_exchange_weak(most, now);) {
    }
    return {block->memory.get(), block, &free_block, torch::kCPU};
  }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  struct Block {
    c10::DataPtr memory;
    int64_t bytes;
  };
  static void free_block(void* block) {
    live -= static_cast<Block*>(block)->bytes;
    delete static_cast<Block*>(block);
  }
  c10::Allocator* usual_ = c10::GetDefaultCPUAllocator();
};

// What the kernel has sent for the TCP connections of this process.
int64_t bytes_sent() {
  int64_t sum = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const auto* entry = ::readdir(folder)) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(std::atoi(entry->d_name), IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
      sum += int64_t(info.tcpi_bytes_sent - info.tcpi_bytes_retrans);
  }
  ::closedir(folder);
  return sum;
}

constexpr int64_t kWidth = 128, kBlocks = 64;

struct Tower : gradus::Model {
  Tower() {
    first = register_module("first", torch::nn::Linear(4, kWidth));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int64_t i = 0; i < kBlocks; ++i) blocks->push_back(torch::nn::Linear(kWidth, kWidth));
    last = register_module("last", torch::nn::Linear(kWidth, 1));
  }
  gradus::ModelOutput forward(const gradus::Batch& batch, const gradus::ForwardOptions&) override {
    auto h = first->forward(batch["x"]);
    for (const auto& block : *blocks) h = h + block->as<torch::nn::Linear>()->forward(h).tanh();
    const auto y = last->forward(h).squeeze(1);
    return {{"loss", torch::mse_loss(y, batch["labels"])}, {"logits", y}};
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::ModuleList blocks{nullptr};
};

int64_t bytes_of(const torch::nn::Module& module) {
  int64_t bytes = 0;
  for (const auto& parameter : module.parameters()) bytes += int64_t(parameter.nbytes());
  return bytes;
}

}  // namespace

int main(int argc, char** argv) try {
  c10::SetCPUAllocator(new CountingAllocator, /*priority=*/1);  // for ever
  const auto args = gradus::parse_args(argc, argv,
                                       {.per_device_train_batch_size = 1,
                                        .max_steps = 8,
                                        .logging_strategy = "no",
                                        .disable_tqdm = true,
                                        .report_to = "none",
                                        .save_strategy = "no",
                                        .use_cpu = true});
  torch::manual_seed(1);
  const auto x = torch::randn({64, 4});
  const auto data = gradus::from_tensors({{"x", x}, {"labels", x.sum(1)}});
  const auto before = live.load();
  auto model = std::make_shared<Tower>();
  nlohmann::json found = {{"parameters", bytes_of(*model)}};
  gradus::Trainer trainer({.model = std::move(model), .args = args, .train_dataset = data});
  constexpr int64_t kFirst = 4, kLast = 7;  // steps between which is counted
  int64_t sent = 0, open = 0;               // `open`: before the optimizer's step
  trainer.on(
      gradus::Event::pre_optimizer_step,
      [&](const gradus::CallbackContext&, gradus::TrainerControl&) { open = live - before; });
  trainer.on(gradus::Event::step_end,
             [&](const gradus::CallbackContext& at, gradus::TrainerControl&) {
               if (at.state.global_step == kFirst) {
                 peak = live.load();
                 sent = bytes_sent();
               } else if (at.state.global_step == kLast) {
                 found["sent"] = (bytes_sent() - sent) / (kLast - kFirst);
                 found["held"] = live - before;
                 found["before_step"] = open;
                 found["peak"] = peak - before;
               }
             });
  trainer.train();
  gradus::write_file_atomically(
      *args.output_dir + "/costs-" + std::to_string(args.process_index()) + ".json",
      gradus::dump_json(found, 1));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "costs_run: " << error.what() << std::endl;
  return 1;
}
