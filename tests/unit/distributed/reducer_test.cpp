// PyTorch's own DistributedDataParallel as the oracle: c10d::Reducer gets the same gradients, and
// both means must have the same bits. Processes are threads here that meet in a store in memory.
#include <gradus/core/error.h>
#include <gradus/distributed/process_group.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
// Without this the header of Gloo's group is empty.
#define USE_C10D_GLOO 1
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <thread>

#include "distributed/gradient_buckets.h"

namespace gradus {
namespace {

using namespace std::chrono_literals;
using Format = BucketOptions::Format;

constexpr int64_t kFirstBucket = 2000, kBucketCap = 8000;  // bytes: several buckets

c10::intrusive_ptr<c10d::ProcessGroup> torch_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                   int rank, int size) {
  const auto own = c10::make_intrusive<c10d::PrefixStore>("oracle", store);
  auto options = c10d::ProcessGroupGloo::Options::create(20s);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(own, rank, size);
  group->setBackend(torch::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(own, rank, size, options));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

// The constructor of LibTorch 2.15; null for another LibTorch.
template <class Reducer>
std::unique_ptr<Reducer> make_reducer(const std::vector<torch::Tensor>& parameters,
                                      c10::intrusive_ptr<c10d::ProcessGroup> group,
                                      bool finds_unused) {
  using Indices = std::vector<std::vector<size_t>>;
  using Names = std::unordered_map<size_t, std::string>;
  if constexpr (std::is_constructible_v<Reducer, std::vector<torch::Tensor>, Indices,
                                        decltype(group), std::vector<bool>, int64_t, bool, bool,
                                        Names, int64_t, bool, bool, std::vector<int64_t>>) {
    const std::vector<bool> is_sparse(parameters.size(), false);
    auto [indices, limits] = c10d::compute_bucket_assignment_by_size(
        parameters, {size_t(kFirstBucket), size_t(kBucketCap)}, is_sparse, {}, std::nullopt);
    std::reverse(indices.begin(), indices.end());
    Names names;
    for (size_t i = 0; i < parameters.size(); ++i) names[i] = std::to_string(i);
    return std::make_unique<Reducer>(parameters, indices, group, is_sparse, kBucketCap,
                                     finds_unused, false, names, kFirstBucket, false, false,
                                     std::vector<int64_t>{});
  } else {
    return nullptr;
  }
}

struct OracleNet {
  OracleNet() {
    model = torch::nn::Sequential(torch::nn::Linear(8, 64), torch::nn::Linear(64, 64),
                                  torch::nn::Linear(64, 4));
  }
  // The layer in the middle is left out by process 1, if `skips`.
  torch::Tensor loss(const torch::Tensor& x, bool skips) {
    auto h = model->at<torch::nn::LinearImpl>(0).forward(x);
    if (!skips) h = model->at<torch::nn::LinearImpl>(1).forward(h).tanh();
    return model->at<torch::nn::LinearImpl>(2).forward(h).pow(2).mean();
  }
  torch::nn::Sequential model = nullptr;
};

void compare_with_reducer(Format format, bool skips, bool is_static = false) {
  constexpr int kProcesses = 2;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  torch::manual_seed(3);
  OracleNet first;
  const auto x = torch::randn({3, kProcesses, 6, 8});
  std::vector<OracleNet> ours(kProcesses), theirs(kProcesses);
  for (auto* nets : {&ours, &theirs})
    for (auto& net : *nets) {
      const torch::NoGradGuard no_grad;
      const auto values = first.model->parameters();
      auto own = net.model->parameters();
      for (size_t i = 0; i < own.size(); ++i) own[i].copy_(values[i]);
    }
  std::atomic<int> compared = 0, skipped = 0;
  const auto work = [&](int rank) {
    const auto group = std::make_shared<ProcessGroup>(store, rank, kProcesses, 20s);
    auto& mine = ours[size_t(rank)];
    auto& other = theirs[size_t(rank)];
    const auto reducer = make_reducer<c10d::Reducer>(other.model->parameters(),
                                                     torch_group(store, rank, kProcesses), skips);
    if (!reducer) {
      ++skipped;
      return;
    }
    if (format == Format::fp16)
      reducer->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
    GradientBuckets::NamedTensors named;
    for (const auto& item : mine.model->named_parameters())
      named.emplace_back(item.key(), item.value());
    GradientBuckets buckets(named, group,
                            {.bucket_cap_bytes = kBucketCap,
                             .first_bucket_bytes = kFirstBucket,
                             .find_unused_parameters = skips && !is_static,
                             .static_graph = is_static,
                             .format = format});
    for (int step = 0; step < 3; ++step) {
      const auto own_x = x[step][rank];
      const bool leaves_out = skips && rank == 1;
      mine.loss(own_x, leaves_out).backward();
      buckets.finish();
      // Only a static graph tells a process that the layer it leaves out will not come.
      if (step > 0) {
        EXPECT_EQ(buckets.sent_in_backward() == buckets.size(), is_static || !leaves_out);
      }
      reducer->prepare_for_forward();
      const auto loss = other.loss(own_x, leaves_out);
      reducer->prepare_for_backward({loss});
      loss.backward();
      if (reducer->should_rebuild_buckets()) reducer->rebuild_buckets();
      const auto a = mine.model->parameters(), b = other.model->parameters();
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_TRUE(a[i].grad().defined() && b[i].grad().defined()) << i;
        EXPECT_TRUE(torch::equal(a[i].grad(), b[i].grad()))
            << "step " << step << ", parameter " << i << ", far by "
            << (a[i].grad() - b[i].grad()).abs().max().item<double>();
        ++compared;
      }
      mine.model->zero_grad();
      other.model->zero_grad();
    }
    group->barrier();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kProcesses; ++rank) threads.emplace_back(work, rank);
  for (auto& thread : threads) thread.join();
  if (skipped > 0) GTEST_SKIP() << "this LibTorch has another c10d::Reducer";
  EXPECT_EQ(compared, 3 * 6 * kProcesses);
}

TEST(Reducer, HasTheSameGradients) { compare_with_reducer(Format::same, false); }
TEST(Reducer, HasTheSameGradientsOfUnusedParameters) { compare_with_reducer(Format::same, true); }
TEST(Reducer, HasTheSameGradientsOfAStaticGraph) { compare_with_reducer(Format::same, true, true); }
TEST(Reducer, HasTheSameGradientsInHalfPrecision) { compare_with_reducer(Format::fp16, false); }

TEST(GradientBuckets, FindsThatAGraphIsNotStatic) {
  const auto group =
      std::make_shared<ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), 0, 1, 20s);
  OracleNet net;
  GradientBuckets::NamedTensors named;
  for (const auto& item : net.model->named_parameters())
    named.emplace_back(item.key(), item.value());
  GradientBuckets buckets(named, group, {.static_graph = true});
  const auto x = torch::ones({2, 8});
  for (int step = 0; step < 2; ++step) {
    net.loss(x, /*skips=*/true).backward();
    buckets.finish();
  }
  try {
    net.loss(x, /*skips=*/false).backward();
    FAIL() << "a further parameter was used";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-DIST-4");
    EXPECT_NE(error.message().find("parameter 1."), std::string::npos) << error.message();
  }
}

TEST(GradientBuckets, TravelInBfloat16) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<torch::Tensor> sent{torch::randn({40, 30}), torch::randn({40, 30})};
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const auto group = std::make_shared<ProcessGroup>(store, rank, 2, 20s);
      const auto weight = torch::zeros({40, 30}, torch::requires_grad());
      GradientBuckets buckets({{"weight", weight}}, group, {.format = Format::bf16});
      (weight * sent[size_t(rank)]).sum().backward();
      buckets.finish();
      const auto half = [&](size_t i) { return sent[i].to(torch::kBFloat16).div_(2); };
      EXPECT_TRUE(torch::equal(weight.grad(), (half(0) + half(1)).to(torch::kFloat)));
      EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace gradus
