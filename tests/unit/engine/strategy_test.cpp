#include <gradus/engine/step_engine.h>
#include <gradus/optim/sgd.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <barrier>
#include <thread>

namespace gradus {
namespace {

/// A strategy for two threads of this process: each adds its gradients to a sum that both read.
class TwoThreads : public Strategy {
 public:
  struct Meeting {
    std::barrier<> door{2};
    std::vector<torch::Tensor> grads[2];
  };
  TwoThreads(Meeting& meeting, int64_t rank) : meeting_(meeting), rank_(rank) {}

  int64_t world_size() const override { return 2; }
  int64_t rank() const override { return rank_; }

  void sync_gradients(std::span<const torch::Tensor> parameters) override {
    auto& own = meeting_.grads[rank_];
    own.clear();
    for (const auto& parameter : parameters) own.push_back(parameter.grad().clone());
    meeting_.door.arrive_and_wait();
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i].mutable_grad() = (meeting_.grads[0][i] + meeting_.grads[1][i]) / 2;
    meeting_.door.arrive_and_wait();
  }

 private:
  Meeting& meeting_;
  int64_t rank_;
};

/// Trains a linear layer on `rows` of one batch, two micro-batches a window; its final weight.
torch::Tensor train(torch::nn::Linear layer, const torch::Tensor& rows,
                    std::shared_ptr<Strategy> strategy) {
  StepEngine engine(torch::kCPU, torch::kFloat, std::move(strategy));
  engine.set_optimizer(std::make_shared<SGD>(layer->parameters(), SGDOptions{.lr = 0.1}));
  engine.begin(*layer, {.max_grad_norm = 0.5});
  for (int step = 0; step < 5; ++step) {
    for (const auto& half : rows.chunk(2)) engine.backward(layer(half).pow(2).mean() / 2);
    engine.clip();
    engine.step();
    engine.step_schedule();
    engine.zero_grad();
  }
  engine.end();
  return layer->weight.detach();
}

TEST(Strategy, TwoThreadsTrainAsOneDoesOnBothShares) {
  torch::manual_seed(1);
  torch::nn::Linear alone(4, 1);
  const auto rows = torch::randn({8, 4});
  std::vector<torch::nn::Linear> layers;
  for (int i = 0; i < 2; ++i)
    layers.emplace_back(std::dynamic_pointer_cast<torch::nn::LinearImpl>(alone->clone()));
  TwoThreads::Meeting meeting;
  std::vector<torch::Tensor> weights(2);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      weights[size_t(rank)] = train(layers[size_t(rank)], rows.slice(0, rank * 4, rank * 4 + 4),
                                    std::make_shared<TwoThreads>(meeting, rank));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(torch::equal(weights[0], weights[1]));
  EXPECT_TRUE(torch::allclose(weights[0], train(alone, rows, nullptr), 1e-5, 1e-6));
}

/// One step in float16 on `rows`, whose gradients are 3/4 of its range at the first scale, divided
/// by their number; the weight after it.
torch::Tensor half_step(torch::nn::Linear layer, const torch::Tensor& rows,
                        std::shared_ptr<Strategy> strategy) {
  StepEngine engine(torch::kCPU, torch::kHalf, std::move(strategy));
  engine.set_optimizer(std::make_shared<SGD>(layer->parameters(), SGDOptions{.lr = 0.5}));
  engine.precision().begin_run();
  engine.begin(*layer, {});
  const auto guard = engine.precision().guard();
  engine.backward(layer(rows).to(torch::kFloat).mean() * 1.5);
  engine.clip();
  engine.step();
  EXPECT_FALSE(engine.step_was_skipped());
  engine.end();
  return layer->weight.detach();
}

TEST(Strategy, HalfPrecisionOverflowsInSharesAsInTheWholeBatch) {
  torch::nn::Linear alone(torch::nn::LinearOptions(4, 1).bias(false));
  const auto rows = torch::full({2, 4}, 1.0 / 1024);
  std::vector<torch::nn::Linear> layers;
  for (int i = 0; i < 2; ++i)
    layers.emplace_back(std::dynamic_pointer_cast<torch::nn::LinearImpl>(alone->clone()));
  TwoThreads::Meeting meeting;
  std::vector<torch::Tensor> weights(2);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      weights[size_t(rank)] = half_step(layers[size_t(rank)], rows.slice(0, rank, rank + 1),
                                        std::make_shared<TwoThreads>(meeting, rank));
    });
  for (auto& thread : threads) thread.join();
  const auto whole = half_step(alone, rows, nullptr);
  EXPECT_TRUE(torch::equal(weights[0], whole)) << weights[0] << whole;
  EXPECT_TRUE(torch::equal(weights[1], whole));
}

TEST(Strategy, IsAskedBetweenTheLastBackwardAndClipping) {
  struct Records : Strategy {
    struct Scope : NoSync {
      explicit Scope(std::string& text) : text(text) { text += "("; }
      ~Scope() override { text += ")"; }
      std::string& text;
    };
    void prepare(torch::nn::Module&) override { text += "p"; }
    void sync_gradients(std::span<const torch::Tensor> parameters) override {
      text += "s";
      for (const auto& parameter : parameters) parameter.mutable_grad().fill_(3);
    }
    std::unique_ptr<NoSync> no_sync() override { return std::make_unique<Scope>(text); }
    std::string text;
  };
  torch::nn::Linear layer(1, 1);
  const auto strategy = std::make_shared<Records>();
  StepEngine engine(torch::kCPU, torch::kFloat, strategy);
  engine.set_optimizer(std::make_shared<SGD>(layer->parameters(), SGDOptions{.lr = 0.1}));
  engine.begin(*layer, {.max_grad_norm = 100});
  const Batch batch{{"x", torch::ones({1, 1})}};
  for (const bool is_last : {false, false, true})
    engine.micro_batch(batch, std::nullopt, {.size = 3, .is_last = is_last},
                       [&](const Batch& inputs, const auto&) {
                         strategy->text += "b";
                         const auto loss = layer(inputs["x"]).sum();
                         engine.backward(loss);
                         return loss.detach();
                       });
  EXPECT_EQ(strategy->text, "p(b)(b)b");
  EXPECT_NEAR(engine.clip().item<double>(), std::sqrt(18.0), 1e-6) << "of what sync made of them";
  EXPECT_EQ(strategy->text, "p(b)(b)bs");
}

}  // namespace
}  // namespace gradus
