// Processes are threads here that meet in a store in memory. tests/integration/sharding.py has real
// processes.
#include "engine/sharded.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gradus/core/error.h>
#include <gradus/engine/step_engine.h>
#include <gradus/optim/adafactor.h>
#include <gradus/optim/adamw.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <thread>

#include "../error_of.h"

namespace gradus {
namespace {

using namespace std::chrono_literals;

struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(6, 40));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 3; ++i) blocks->push_back(torch::nn::Linear(40, 40));
    unused = register_module("unused", torch::nn::Linear(3, 3));
    frozen = register_module("frozen", torch::nn::Linear(40, 40));
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    last = register_module("last", torch::nn::Linear(40, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto h = torch::tanh(first->forward(x));
    for (const auto& block : *blocks) h = h + block->as<torch::nn::Linear>()->forward(h).tanh();
    return last->forward(h + frozen->forward(h));
  }
  torch::nn::Linear first{nullptr}, unused{nullptr}, frozen{nullptr}, last{nullptr};
  torch::nn::ModuleList blocks{nullptr};
};

using Weights = std::vector<torch::Tensor>;

Weights copies(const torch::nn::Module& model) {
  Weights found;
  for (const auto& parameter : model.parameters()) found.push_back(parameter.detach().clone());
  return found;
}

double distance(const Weights& a, const Weights& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  return most;
}

/// Three steps of two micro-batches; rows are cut between the processes.
void train(StepEngine& engine, Net& net, int64_t rank, int64_t size) {
  // A generator of its own: threads share the usual one.
  const auto rows = torch::randn({3, 2, 8, 6}, at::detail::createCPUGenerator(9));
  for (int64_t step = 0; step < 3; ++step) {
    for (int64_t i = 0; i < 2; ++i) {
      const auto own = rows[step][i].chunk(size)[size_t(rank)];
      engine.micro_batch({{"x", own}}, std::nullopt, {.size = 2, .is_last = i == 1},
                         [&](const Batch& inputs, const auto&) {
                           const auto loss = net.forward(inputs["x"]).pow(2).mean() / 2;
                           engine.backward(loss);
                           return loss.detach();
                         });
    }
    engine.clip();
    engine.step();
    engine.step_schedule();
    engine.zero_grad();
  }
}

std::shared_ptr<AdamW> optimizer_of(const Net& net) {
  Weights trained;
  for (const auto& parameter : net.parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  return std::make_shared<AdamW>(trained, AdamWOptions{.lr = 0.01});
}

/// Runs `work(group)` in each of `size` threads.
template <class Work>
void run_threads(int64_t size, Work work) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank)
    threads.emplace_back(
        [&, rank] { work(std::make_shared<ProcessGroup>(store, rank, size, 20s)); });
  for (auto& thread : threads) thread.join();
}

class ShardedStage : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, ShardedStage, testing::Values(1, 2, 3));

TEST_P(ShardedStage, TrainsAsOneProcessDoes) {
  Net alone;
  StepEngine single(torch::kCPU);
  const auto optimizer = optimizer_of(alone);
  single.set_optimizer(optimizer);
  single.begin(alone, {.max_grad_norm = 0.1});
  train(single, alone, 0, 1);
  single.end();
  const auto goal = copies(alone);

  std::vector<std::shared_ptr<Net>> nets;  // made here: threads share the generator
  for (int i = 0; i < 3; ++i) nets.push_back(std::make_shared<Net>());
  std::vector<StateTree> states(2);
  run_threads(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    auto& net = *nets[size_t(group->rank())];
    StepEngine engine(torch::kCPU, torch::kFloat,
                      std::make_shared<Sharded>(group, ShardedOptions{.stage = GetParam()}));
    engine.set_optimizer(optimizer_of(net));
    engine.begin(net, {.max_grad_norm = 0.1});
    train(engine, net, group->rank(), 2);
    states[size_t(group->rank())] = engine.optimizer()->state_dict();
    {
      const auto whole = engine.strategy().whole(Strategy::Use::read);
      EXPECT_LT(distance(copies(net), goal), 1e-6);
    }
    engine.end();
    EXPECT_LT(distance(copies(net), goal), 1e-6);
  });

  // Each holds about half of the state, and both together all of it.
  int64_t held[2] = {0, 0}, all = 0;
  const auto state = optimizer->state_dict();
  for (const auto& [number, entry] : state.at("state").entries())
    all += entry.at("exp_avg").as_tensor().numel();
  for (size_t rank = 0; rank < 2; ++rank)
    for (const auto& [number, entry] : states[rank].at("state").entries())
      held[rank] += entry.at("exp_avg").as_tensor().numel();
  EXPECT_EQ(held[0] + held[1], all);
  EXPECT_LT(double(std::max(held[0], held[1])), 1.1 * double(all) / 2);
}

TEST_P(ShardedStage, TakesOverWhatIsWrittenToTheWeights) {
  std::vector<std::shared_ptr<Net>> nets{std::make_shared<Net>(), std::make_shared<Net>()};
  run_threads(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    const torch::NoGradGuard no_grad;
    auto& net = *nets[size_t(group->rank())];
    Sharded strategy(group, {.stage = GetParam()});
    strategy.prepare(net);
    {
      const auto whole = strategy.whole(Strategy::Use::written);
      for (auto& parameter : net.parameters()) parameter.fill_(0.25);
    }
    EXPECT_EQ(net.forward(torch::zeros({1, 6})).numel(), 1);  // gathered as it is used
    strategy.release();
    for (const auto& parameter : net.parameters())
      EXPECT_TRUE(torch::equal(parameter, torch::full_like(parameter, 0.25)));
  });
}

TEST(Sharded, LoadsAStateThatIsWhole) {
  Net alone;
  StepEngine single(torch::kCPU);
  single.set_optimizer(optimizer_of(alone));
  single.begin(alone, {.max_grad_norm = 0.1});
  train(single, alone, 0, 1);
  single.end();
  const auto weights = copies(alone);
  const auto state = single.optimizer()->state_dict();
  std::vector<std::shared_ptr<Net>> nets;
  for (int i = 0; i < 2; ++i) {
    nets.push_back(std::make_shared<Net>());
    const torch::NoGradGuard no_grad;
    auto parameters = nets.back()->parameters();
    for (size_t k = 0; k < parameters.size(); ++k) parameters[k].copy_(weights[k]);
  }
  run_threads(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    auto& net = *nets[size_t(group->rank())];
    StepEngine engine(torch::kCPU, torch::kFloat,
                      std::make_shared<Sharded>(group, ShardedOptions{.stage = 3}));
    engine.set_optimizer(optimizer_of(net));
    engine.prepare(net);
    engine.optimizer()->load_state_dict(engine.strategy().localize(state));
    engine.begin(net, {.max_grad_norm = 0.1});
    train(engine, net, group->rank(), 2);
    engine.end();
  });
  single.begin(alone, {.max_grad_norm = 0.1});
  train(single, alone, 0, 1);
  single.end();
  EXPECT_LT(distance(copies(*nets[0]), copies(alone)), 1e-6);
  EXPECT_EQ(distance(copies(*nets[0]), copies(*nets[1])), 0);
}

template <class Storage>
constexpr bool takes_texts_back =
    requires(Storage& storage) { storage.clear_data_ptr_access_error_msg_(); };

TEST(Sharded, SaysThatParametersLieInParts) {
  std::vector<std::shared_ptr<Net>> nets{std::make_shared<Net>(), std::make_shared<Net>()};
  run_threads(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    auto& net = *nets[size_t(group->rank())];
    Sharded strategy(group, {.stage = 3});
    strategy.prepare(net);
    try {
      net.first->weight.const_data_ptr<float>();
      ADD_FAILURE() << "a parameter without memory was read";
    } catch (const std::exception& error) {
      // Older versions of LibTorch refuse, too, but with a text of their own.
      constexpr bool has_own_text = takes_texts_back<c10::StorageImpl>;
      const auto text = has_own_text ? "lie in parts in several processes" : "not allocated";
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
    strategy.release();
  });
}

TEST(Sharded, RefusesAnOptimizerThatNeedsWholeTensors) {
  Net net;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Sharded strategy(std::make_shared<ProcessGroup>(store, 0, 1, 5s), {.stage = 2});
  strategy.prepare(net);
  Adafactor optimizer(net.parameters());
  const auto error = id_and_message_of([&] { strategy.attach(optimizer); });
  EXPECT_NE(error.find("G-DIST-7"), std::string::npos) << error;
  EXPECT_NE(error.find("adafactor cannot train parts of parameters"), std::string::npos) << error;
  strategy.release();
}

}  // namespace
}  // namespace gradus
