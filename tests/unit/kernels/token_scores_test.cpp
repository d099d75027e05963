#include <ATen/ops/linear.h>
#include <gradus/core/error.h>
#include <gradus/kernels/fused.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernel_fixture.h"
#include "kernels/single_use.h"

namespace gradus::kernels {
namespace {

using torch::Tensor;

class Scores : public KernelTest {};
class Adapted : public KernelTest {};

/// Labels with some that do not count.
Tensor labels_for(int64_t rows, int64_t classes, torch::Device device) {
  auto labels = torch::randint(0, classes, {rows}, torch::kLong);
  labels.slice(0, 1, rows, 5).fill_(-100);
  return labels.to(device);
}

/// All scores in float64 on the CPU; log_probs and entropy with their graph.
LinearTokenScores wide_scores(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                              const Tensor& given, double temperature) {
  const auto labels = given.to(torch::kCPU);
  const auto kept = labels.ne(-100).to(torch::kDouble);
  auto logits = at::linear(hidden, weight) / temperature;
  if (bias.defined()) logits = at::linear(hidden, weight, bias) / temperature;
  const auto logs = logits.log_softmax(1);
  const auto targets = labels.clamp_min(0).unsqueeze(1);
  return {logs.gather(1, targets).squeeze(1) * kept, -(logs.exp() * logs).sum(1) * kept,
          logits.mean(1) * kept, logits.argmax(1).eq(labels).to(torch::kDouble),
          (2 * logs).logsumexp(1) * kept};
}

TEST_P(Scores, AgreeWithFloat64ForwardAndBackward) {
  for (const int64_t classes : {7, 200, 3001}) {
    for (const bool biased : {false, true}) {
      const int64_t rows = 300, width = 32;
      const double temperature = biased ? 0.7 : 1.0;
      const auto hidden = leaf({rows, width}), weight = leaf({classes, width}, 0.4),
                 bias = biased ? leaf({classes}, 0.3) : Tensor();
      const auto labels = labels_for(rows, classes, GetParam().device);
      const auto h = wide(hidden), w = wide(weight), b = biased ? wide(bias) : Tensor();
      ASSERT_TRUE(linear_token_scores_apply(hidden, weight, bias));
      const auto got = linear_token_scores(hidden, weight, bias, labels, temperature);
      const auto wanted = wide_scores(h, w, b, labels, temperature);
      const auto what = std::to_string(classes) + " classes" + (biased ? ", bias" : "");
      // Logits are rounded to the dtype before they are scored.
      expect_close(got.log_probs, wanted.log_probs, limit(), what + ", log_probs");
      expect_close(got.entropy, wanted.entropy, limit(), what + ", entropy");
      expect_close(got.mean_logits, wanted.mean_logits, 3 * limit(), what + ", mean_logits");
      expect_close(got.log_sum_sq_probs, wanted.log_sum_sq_probs, limit(), what + ", squares");
      if (dtype() == torch::kFloat) {
        EXPECT_TRUE(got.is_top1.to(torch::kCPU).equal(wanted.is_top1.to(torch::kFloat))) << what;
      }

      const auto to_logs = leaf({rows}).detach().to(torch::kFloat),
                 to_entropy = leaf({rows}).detach().to(torch::kFloat);
      torch::autograd::backward({got.log_probs, got.entropy}, {to_logs, to_entropy});
      torch::autograd::backward({wanted.log_probs, wanted.entropy},
                                {wide(to_logs).detach(), wide(to_entropy).detach()});
      expect_close(hidden.grad(), h.grad(), 2 * limit(), what + ", hidden");
      expect_close(weight.grad(), w.grad(), 2 * limit(), what + ", weight");
      if (biased) expect_close(bias.grad(), b.grad(), 2 * limit(), what + ", bias");
    }
  }
}

TEST_P(Scores, TheLossHasTheGradientsOfItsScores) {
  for (const bool weighted : {false, true}) {
    const int64_t rows = 300, width = 32, classes = 1000;
    const auto hidden = leaf({rows, width}), weight = leaf({classes, width}, 0.4);
    const auto labels = labels_for(rows, classes, GetParam().device);
    const auto h = wide(hidden), w = wide(weight);
    const auto [loss, scores] =
        linear_token_loss(hidden, weight, Tensor(), labels, number(0.25), weighted);
    (loss * 3).backward();
    const auto wanted = wide_scores(h, w, Tensor(), labels, 1.0);
    const auto kept = labels.to(torch::kCPU).ne(-100).to(torch::kDouble);
    const auto share = weighted ? wanted.log_probs.detach().exp() * kept : kept;
    const auto expected = -(wanted.log_probs * share).sum() * 0.25;
    (expected * 3).backward();
    const auto* what = weighted ? "weighted" : "plain";
    expect_close(loss, expected, limit(), what);
    expect_close(scores.log_probs, wanted.log_probs, limit(), what);
    EXPECT_FALSE(scores.log_probs.requires_grad());
    expect_close(hidden.grad(), h.grad(), 2 * limit(), what);
    expect_close(weight.grad(), w.grad(), 2 * limit(), what);
    EXPECT_THROW((loss * 3).backward(), Error) << "the logits are gone";
  }
}

TEST_P(Scores, AFrozenHeadGetsNoGradient) {
  const auto hidden = leaf({40, 16}), weight = leaf({64, 16}).detach();
  const auto labels = labels_for(40, 64, GetParam().device);
  linear_token_scores(hidden, weight, Tensor(), labels).log_probs.sum().backward();
  EXPECT_TRUE(hidden.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
  const auto kept = labels.ne(-100);
  EXPECT_EQ(hidden.grad().masked_select(kept.logical_not().unsqueeze(1)).abs().sum().item<double>(),
            0.0);
}

TEST_P(Scores, ALabelOutsideTheClassesIsNoNumber) {
  const auto hidden = leaf({2, 16}), weight = leaf({64, 16});
  const auto labels = torch::tensor({int64_t{64}, int64_t{3}}).to(GetParam().device);
  const auto scores = linear_token_scores(hidden, weight, Tensor(), labels).log_probs.cpu();
  EXPECT_TRUE(std::isnan(scores[0].item<double>()));
  EXPECT_FALSE(std::isnan(scores[1].item<double>()));
}

Tensor wide_adapted(const Tensor& x, const Tensor& weight, const Tensor& bias, const LowRank& low) {
  auto y = at::linear(x, weight);
  if (bias.defined()) y = y + bias;
  return y + at::linear(at::linear(x, low.a), low.b) * low.scale;
}

TEST_P(Adapted, LinearAgreesWithFloat64) {
  for (const bool frozen : {true, false}) {
    const auto x = leaf({3, 11, 48}), bias = frozen ? Tensor() : leaf({40});
    auto weight = leaf({40, 48}, 0.2);
    if (frozen) weight = weight.detach();
    const LowRank low{leaf({8, 48}, 0.2), leaf({40, 8}, 0.2), 1.5};
    const LowRank l{wide(low.a), wide(low.b), 1.5};
    const auto d = wide(x), w = wide(weight), b = frozen ? Tensor() : wide(bias);
    const auto got = lora_linear(x, weight, bias, low), wanted = wide_adapted(d, w, b, l);
    const auto grad = leaf({3, 11, 40}).detach();
    torch::autograd::backward({got}, {grad});
    torch::autograd::backward({wanted}, {wide(grad).detach()});
    expect_close(got, wanted, limit(), "output");
    expect_close(x.grad(), d.grad(), limit(), "x");
    expect_close(low.a.grad(), l.a.grad(), limit(), "a");
    expect_close(low.b.grad(), l.b.grad(), limit(), "b");
    if (frozen) continue;
    expect_close(weight.grad(), w.grad(), limit(), "weight");
    expect_close(bias.grad(), b.grad(), limit(), "bias");
  }
}

TEST_P(Adapted, LinearWithTurnedWeightIsTheSame) {
  const auto x = leaf({5, 48}), weight = leaf({40, 48}, 0.2), bias = leaf({40});
  const LowRank low{leaf({8, 48}, 0.2), leaf({40, 8}, 0.2), 0.5};
  const auto turned = weight.detach().t().contiguous().requires_grad_(true);
  const auto one = lora_linear(x, weight, bias, low),
             other = lora_linear(x, turned, bias, low, /*in_out=*/true);
  expect_close(other, one, limit(), "output");
  one.sum().backward();
  const auto first = x.grad().clone();
  x.mutable_grad().reset();
  other.sum().backward();
  expect_close(x.grad(), first, limit(), "x");
  expect_close(turned.grad(), weight.grad().t(), limit(), "weight");
}

TEST_P(Adapted, GatedLinearAgreesWithFloat64) {
  for (const bool once : {false, true}) {
    const int64_t rows = 5000;  // more than are computed at a time
    const auto gate = leaf({rows, 16}), up = leaf({rows, 16});
    const auto weight = leaf({24, 16}, 0.3).detach();
    const LowRank low{leaf({4, 16}, 0.3), leaf({24, 4}, 0.3), 1.5};
    const LowRank l{wide(low.a), wide(low.b), 1.5};
    const auto g = wide(gate), u = wide(up), w = wide(weight).detach();
    const auto d = leaf({rows, 24}).detach();
    {
      std::optional<SingleUse> single_use;
      if (once) single_use.emplace();
      // Copies, because a graph that is used once writes over them.
      const auto own_gate = gate * 1, own_up = up * 1;
      const auto got = swiglu_linear(own_gate, own_up, weight, Tensor(), low);
      expect_close(got,
                   wide_adapted(g.detach() * torch::sigmoid(g.detach()) * u.detach(), w, {}, l),
                   limit(), "output");
      torch::autograd::backward({got}, {d});
    }
    torch::autograd::backward({wide_adapted(g * torch::sigmoid(g) * u, w, {}, l)},
                              {wide(d).detach()});
    expect_close(gate.grad(), g.grad(), limit(), "gate");
    expect_close(up.grad(), u.grad(), limit(), "up");
    expect_close(low.a.grad(), l.a.grad(), limit(), "a");
    expect_close(low.b.grad(), l.b.grad(), limit(), "b");
  }
}

TEST_P(Adapted, NormedProjectionsAgreeWithFloat64) {
  for (const bool with_residual : {true, false}) {
    const auto residual = with_residual ? leaf({2, 9, 64}) : Tensor(), x = leaf({2, 9, 64});
    const auto norm = leaf({64}, 0.3, 1.0);
    // The second one has no adapter.
    const std::vector<Tensor> weights = {leaf({32, 64}, 0.2).detach(), leaf({16, 64}, 0.2).detach(),
                                         leaf({24, 64}, 0.2)};
    const std::vector<LowRank> lows = {{leaf({4, 64}, 0.2), leaf({32, 4}, 0.2), 2.0},
                                       {},
                                       {leaf({8, 64}, 0.2), leaf({24, 8}), 0.5}};
    const auto got = add_rms_norm_linear(residual, x, norm, 1e-6, weights, {}, lows);
    const auto r = with_residual ? wide(residual) : Tensor(), d = wide(x), n = wide(norm);
    const auto sum = with_residual ? r + d : d;
    const auto rounded = sum + (got.sum.detach().to(torch::kCPU).to(torch::kDouble) - sum.detach());
    const auto normed = rounded * (rounded.square().mean(-1, true) + 1e-6).rsqrt() * n;
    std::vector<Tensor> wanted, grads, wide_grads, outputs = got.outputs;
    std::vector<LowRank> wide_lows;
    const auto last = wide(weights[2]);
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto w = i == 2 ? last : wide(weights[i]).detach();
      wide_lows.push_back(lows[i].a.defined()
                              ? LowRank{wide(lows[i].a), wide(lows[i].b), lows[i].scale}
                              : LowRank());
      wanted.push_back(lows[i].a.defined() ? wide_adapted(normed, w, {}, wide_lows[i])
                                           : at::linear(normed, w));
      expect_close(outputs[i], wanted[i], limit(), "output " + std::to_string(i));
      grads.push_back(leaf(outputs[i].sizes()).detach());
      wide_grads.push_back(wide(grads[i]).detach());
    }
    if (with_residual) {  // the sum goes on to the next layer
      outputs.push_back(got.sum);
      wanted.push_back(rounded);
      grads.push_back(leaf(got.sum.sizes()).detach());
      wide_grads.push_back(wide(grads.back()).detach());
    }
    torch::autograd::backward(outputs, grads);
    torch::autograd::backward(wanted, wide_grads);
    expect_close(x.grad(), d.grad(), limit(), "x");
    if (with_residual) expect_close(residual.grad(), r.grad(), limit(), "residual");
    expect_close(norm.grad(), n.grad(), 2 * limit(), "norm");
    expect_close(weights[2].grad(), last.grad(), limit(), "weight");
    for (const size_t i : {size_t{0}, size_t{2}}) {
      expect_close(lows[i].a.grad(), wide_lows[i].a.grad(), limit(), "a " + std::to_string(i));
      expect_close(lows[i].b.grad(), wide_lows[i].b.grad(), limit(), "b " + std::to_string(i));
    }
    EXPECT_FALSE(weights[0].grad().defined());
  }
}

const auto kScoresOnCpu = testing::Values(Setting{torch::kCPU, torch::kFloat});
const auto kScoresOnGpu =
    testing::Values(Setting{torch::kCUDA, torch::kFloat}, Setting{torch::kCUDA, torch::kBFloat16});
INSTANTIATE_TEST_SUITE_P(Cpu, Scores, kScoresOnCpu, setting_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Scores, kScoresOnGpu, setting_name);
INSTANTIATE_TEST_SUITE_P(Cpu, Adapted, kScoresOnCpu, setting_name);
INSTANTIATE_TEST_SUITE_P(Gpu, Adapted, kScoresOnGpu, setting_name);

}  // namespace
}  // namespace gradus::kernels
