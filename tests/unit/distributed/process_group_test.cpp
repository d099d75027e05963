// Processes are threads here that meet in a store in memory: what they exchange, and what they say
// when one is missing. tests/integration has real processes.
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/device/gpu.h>
#include <gradus/distributed/process_group.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <barrier>
#include <future>
#include <thread>

#include "../error_of.h"
#include "distributed/gradient_buckets.h"

namespace gradus {
namespace {

using namespace std::chrono_literals;

/// Runs `work(group)` in each of `size` threads.
template <class Work>
void run_processes(int64_t size, Work work, std::chrono::milliseconds timeout = 20s) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  std::barrier all_connected(size);  // nobody leaves while another one connects
  for (int64_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const auto group = std::make_shared<ProcessGroup>(store, rank, size, timeout);
      all_connected.arrive_and_wait();
      work(group);
    });
  for (auto& thread : threads) thread.join();
}

TEST(ProcessGroup, Exchanges) {
  run_processes(3, [](const std::shared_ptr<ProcessGroup>& group) {
    const auto rank = double(group->rank());
    auto value = torch::full({5}, rank + 1);
    group->sum(value);
    EXPECT_TRUE(torch::equal(value, torch::full({5}, 6.0)));
    value = torch::full({2}, rank);
    group->broadcast(value, 2);
    EXPECT_TRUE(torch::equal(value, torch::full({2}, 2.0)));
    const auto all = group->gather(torch::full({2}, rank));
    ASSERT_EQ(all.size(), 3U);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(all[size_t(i)][1].item<double>(), double(i));
    const auto texts = group->gather_bytes(std::string(size_t(group->rank()), 'a'));
    EXPECT_EQ(texts, (std::vector<std::string>{"", "a", "aa"}));
    group->barrier();
  });
}

TEST(ProcessGroup, ExchangesNothingAlone) {
  const auto group = ProcessGroup::alone(20s);
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  const auto value = torch::arange(6, torch::kFloat);
  auto changed = value.clone();
  group->sum(changed);
  group->broadcast(changed);
  EXPECT_TRUE(torch::equal(changed, value));
  EXPECT_TRUE(torch::equal(group->gather(value).at(0), value));
  auto all = torch::zeros_like(value), received = torch::zeros_like(value);
  group->start_gather(all, value).wait();
  group->start_all_to_all(received, value).wait();
  EXPECT_TRUE(torch::equal(all, value));
  EXPECT_TRUE(torch::equal(received, value));
  EXPECT_EQ(group->channel("more")->gather_bytes("text"), std::vector<std::string>{"text"});
  group->barrier();
}

TEST(ProcessGroup, SaysWhyThereIsNoNccl) {
  if (device::has_plugin()) GTEST_SKIP() << "the CUDA plugin is here";
  const auto group = ProcessGroup::alone(20s);
  const auto error = id_and_message_of([&] { group->use_nccl(torch::Device(torch::kCUDA, 0)); });
  EXPECT_NE(error.find("G-DIST-6"), std::string::npos) << error;
  EXPECT_NE(error.find("NCCL needs libgradus_cuda.so, which is not"), std::string::npos) << error;
  EXPECT_FALSE(group->has_nccl());
  group->barrier();
}

TEST(ProcessGroup, NamesTheProcessThatIsSilent) {
  run_processes(
      3,
      [](const std::shared_ptr<ProcessGroup>& group) {
        if (group->rank() == 1) return;
        const auto error = id_and_message_of([&] { group->barrier(); });
        EXPECT_NE(error.find("G-DIST-2"), std::string::npos) << error;
        EXPECT_NE(error.find("process 1 of 3 ended, hangs or cannot be reached"), std::string::npos)
            << error;
      },
      1s);
}

TEST(ProcessGroup, PassesOnTheReasonOfAFailure) {
  run_processes(
      3,
      [](const std::shared_ptr<ProcessGroup>& group) {
        if (group->rank() == 2) return group->fail("no memory left\nsecond line");
        const auto error = id_and_message_of([&] { group->barrier(); });
        EXPECT_NE(error.find("process 2 failed: no memory left ("), std::string::npos) << error;
      },
      1s);
}

/// Fulfils a promise with the first warning.
struct FirstWarning : LogSink {
  void message(LogLevel level, std::string_view line) override {
    if (level == LogLevel::warning && !std::exchange(given, true))
      text.set_value(std::string(line));
  }
  void print(std::string_view) override {}
  std::promise<std::string> text;
  bool given = false;
};

TEST(ProcessGroup, NamesTheProcessThatIsSlow) {
  const auto sink = std::make_shared<FirstWarning>();
  auto warning = sink->text.get_future();
  const auto former = set_log_sink(sink);
  run_processes(
      2,
      [&](const std::shared_ptr<ProcessGroup>& group) {
        if (group->rank() == 1) {
          ASSERT_EQ(warning.wait_for(4s), std::future_status::ready) << "nobody complains";
          EXPECT_NE(warning.get().find("Process 1 of 2 kept the others waiting for"),
                    std::string::npos);
        }
        group->barrier();
      },
      5s);
  set_log_sink(former);
}

// A port of 127.0.0.1 that nobody has.
uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(socket, generic, length), 0);
  EXPECT_EQ(::getsockname(socket, generic, &length), 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

TEST(ProcessGroup, SaysWhoIsMissingAtTheStart) {
  const LaunchEnvironment here{.rank = 0, .world_size = 3};
  const auto port = free_port();
  const auto error =
      id_and_message_of([&] { ProcessGroup::join(here, {.port = port, .timeout = 1s}); });
  EXPECT_NE(error.find("G-DIST-3"), std::string::npos) << error;
  EXPECT_NE(error.find("at 127.0.0.1:" + std::to_string(port) +
                       " for the others: missing processes 1, 2"),
            std::string::npos)
      << error;
}

TEST(ProcessGroup, ConnectsOverTcp) {
  const auto port = free_port();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const LaunchEnvironment here{.rank = rank, .world_size = 2, .local_world_size = 2};
      const auto group = ProcessGroup::join(here, {.port = port, .timeout = 20s});
      auto value = torch::full({3}, double(rank));
      group->sum(value);
      EXPECT_EQ(value[0].item<double>(), 1);
      group->barrier();
    });
  for (auto& thread : threads) thread.join();
}

/// A model, its share of a batch, and the gradients that one process has for the whole batch.
struct Case {
  Case(int64_t processes, int64_t rank) {
    torch::manual_seed(3);
    model = torch::nn::Sequential(torch::nn::Linear(8, 64), torch::nn::Linear(64, 64),
                                  torch::nn::Linear(64, 4));
    const auto x = torch::randn({12 * processes, 8}), y = torch::randn({12 * processes, 4});
    torch::mse_loss(model->forward(x), y).backward();
    for (const auto& item : model->named_parameters()) {
      parameters.emplace_back(item.key(), item.value());
      expected.push_back(item.value().grad().clone());
      parameters.back().second.mutable_grad() = torch::Tensor();
    }
    own_x = x.narrow(0, 12 * rank, 12);
    own_y = y.narrow(0, 12 * rank, 12);
  }
  void backward(int64_t first = 0, int64_t count = 12) {
    torch::mse_loss(model->forward(own_x.narrow(0, first, count)), own_y.narrow(0, first, count))
        .backward();
  }
  double worst(double scale = 1) const {
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      worst = std::max(
          worst, (parameters[i].second.grad() - scale * expected[i]).abs().max().item<double>());
    return worst;
  }

  torch::nn::Sequential model = nullptr;
  GradientBuckets::NamedTensors parameters;
  std::vector<torch::Tensor> expected;
  torch::Tensor own_x, own_y;
};

// Models are made one after the other: the seed is the process's, and here all share one.
std::mutex making;
Case make_case(const ProcessGroup& group) {
  const std::scoped_lock lock(making);
  return {group.size(), group.rank()};
}

TEST(GradientBuckets, MakeTheGradientsOfTheWholeBatch) {
  for (const int64_t size : {2, 3, 4})
    run_processes(size, [](const std::shared_ptr<ProcessGroup>& group) {
      auto mine = make_case(*group);
      GradientBuckets buckets(mine.parameters, group,
                              {.bucket_cap_bytes = 8000, .first_bucket_bytes = 2000});
      EXPECT_GT(buckets.size(), 2U);
      for (int step = 0; step < 3; ++step) {
        mine.backward();
        buckets.finish();
        EXPECT_LT(mine.worst(), 1e-7);
        EXPECT_EQ(buckets.sent_in_backward(), buckets.size()) << "the backward pass sends all";
        mine.model->zero_grad(step == 1);
      }
      // a window of three micro-batches: sent once, in the last
      for (int part = 0; part < 3; ++part) {
        buckets.set_sending(part == 2);
        buckets.begin_backward();
        mine.backward(4 * part, 4);
        if (part < 2) buckets.move_gradients();
      }
      buckets.finish();
      EXPECT_LT(mine.worst(3), 1e-6);
      const auto bits = group->gather(mine.parameters[0].second.grad());
      for (const auto& each : bits) EXPECT_TRUE(torch::equal(each, bits[0])) << "equal bits";
    });
}

// Recorded steps need this: a group of one changes no bit, a pass that failed can be tried again,
// and gradients are in their places after every pass.
TEST(GradientBuckets, KeepTheBitsOfAProcessAlone) {
  const auto group = ProcessGroup::alone(20s);
  auto mine = make_case(*group);
  GradientBuckets buckets(mine.parameters, group, {.find_unused_parameters = true});
  std::vector<const void*> places;
  for (int step = 0; step < 3; ++step) {
    if (step == 1) {
      mine.backward();  // of which nothing is to stay
      mine.model->zero_grad(/*set_to_none=*/true);
    }
    buckets.begin_backward();
    buckets.set_sending(step != 0);
    mine.backward();
    if (step == 0) {
      buckets.move_gradients();
      buckets.set_sending(true);
    }
    for (const auto& [name, parameter] : mine.parameters) {
      if (step == 0) places.push_back(parameter.grad().data_ptr());
      EXPECT_NE(std::find(places.begin(), places.end(), parameter.grad().data_ptr()), places.end());
    }
    buckets.finish();
    for (size_t i = 0; i < mine.expected.size(); ++i)
      EXPECT_TRUE(torch::equal(mine.parameters[i].second.grad(), mine.expected[i]));
    mine.model->zero_grad(/*set_to_none=*/true);
  }
}

TEST(GradientBuckets, AnswerParametersThatAreNotUsed) {
  for (const bool finds : {true, false})
    run_processes(2, [finds](const std::shared_ptr<ProcessGroup>& group) {
      auto mine = make_case(*group);
      auto& last = mine.model->at<torch::nn::LinearImpl>(2);
      auto& first = mine.model->at<torch::nn::LinearImpl>(0);
      GradientBuckets buckets(mine.parameters, group, {.find_unused_parameters = finds});
      // process 1 does not use the last layer, nobody uses the middle one
      auto y = first.forward(mine.own_x);
      if (group->rank() == 0) y = last.forward(y);
      y.sum().backward();
      if (!finds) {
        const auto error = id_and_message_of([&] { buckets.finish(); });
        EXPECT_NE(error.find("G-DIST-4"), std::string::npos) << error;
        EXPECT_NE(error.find("1.weight"), std::string::npos) << error;
        return;
      }
      buckets.finish();
      EXPECT_TRUE(last.weight.grad().defined());
      EXPECT_FALSE(mine.parameters[2].second.grad().defined()) << "used by nobody";
      const auto bits = group->gather(last.weight.grad());
      EXPECT_TRUE(torch::equal(bits[0], bits[1]));
      EXPECT_GT(bits[0].abs().sum().item<double>(), 0);
    });
}

}  // namespace
}  // namespace gradus
