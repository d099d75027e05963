#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gradus/core/error.h>
#include <gradus/models/backbone.h>
#include <gradus/models/layers/activation.h>
#include <gradus/models/layers/attention.h>
#include <gradus/models/layers/checkpoint.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/layers/linear_cross_entropy.h>
#include <gradus/models/layers/no_dropout.h>
#include <gradus/models/layers/rotary.h>
#include <gradus/models/losses.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "../error_of.h"

namespace gradus::layers {
namespace {

using torch::Tensor;

double difference(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

/// Loss and gradients of the plain and of the chunked form.
struct Both {
  Both(int64_t rows, int64_t classes, const Tensor& labels, const std::optional<Tensor>& items,
       bool with_bias) {
    torch::manual_seed(3);
    const auto x = torch::randn({rows, 24}), w = torch::randn({classes, 24}) * 0.2,
               b = torch::randn({classes}) * 0.1;
    for (int form = 0; form < 2; ++form) {
      const auto hidden = x.clone().requires_grad_(), weight = w.clone().requires_grad_();
      const auto bias = with_bias ? b.clone().requires_grad_() : Tensor();
      const auto loss = form == 0 ? token_loss(with_bias ? torch::linear(hidden, weight, bias)
                                                         : torch::linear(hidden, weight),
                                               labels, items)
                                  : linear_cross_entropy(hidden, weight, bias, labels, items);
      (loss * 0.5).backward();
      losses[form] = loss.item<double>();
      gradients[form] = {hidden.grad(), weight.grad()};
      if (with_bias) gradients[form].push_back(bias.grad());
    }
  }
  double losses[2];
  std::vector<Tensor> gradients[2];
};

void expect_equal(const Both& both) {
  EXPECT_NEAR(both.losses[0], both.losses[1], 1e-6);
  for (size_t i = 0; i < both.gradients[0].size(); ++i)
    EXPECT_LT(difference(both.gradients[0][i], both.gradients[1][i]), 1e-6);
}

TEST(LinearCrossEntropy, EqualsThePlainForm) {
  torch::manual_seed(1);
  auto labels = torch::randint(0, 50, {70});
  expect_equal(Both(70, 50, labels, std::nullopt, false));
  expect_equal(Both(70, 50, labels, torch::tensor(91), true));
  labels.slice(0, 0, 70, 3).fill_(-100);
  expect_equal(Both(70, 50, labels, std::nullopt, true));
  expect_equal(Both(70, 50, labels, torch::tensor(91.0), false));
}

TEST(LinearCrossEntropy, EqualsThePlainFormOverSeveralChunks) {
  torch::manual_seed(2);
  expect_equal(
      Both(700, 40000, torch::randint(0, 40000, {700}), std::nullopt, true));  // 419 rows a chunk
}

TEST(LinearCrossEntropy, WithoutLabelsIsWhatThePlainFormGives) {
  const auto labels = torch::full({6}, -100, torch::kLong);
  const Both both(6, 9, labels, torch::tensor(4), false);
  EXPECT_EQ(both.losses[1], 0.0);
  EXPECT_EQ(both.gradients[1][0].abs().sum().item<double>(), 0.0);
  EXPECT_TRUE(std::isnan(linear_cross_entropy(torch::zeros({6, 2}), torch::zeros({9, 2}), Tensor(),
                                              labels, std::nullopt)
                             .item<double>()));
}

TEST(LinearCrossEntropy, GivesNoGradientsToFrozenWeights) {
  const auto hidden = torch::randn({5, 3}).requires_grad_(), weight = torch::randn({4, 3});
  linear_cross_entropy(hidden, weight, Tensor(), torch::tensor({0, 1, 2, 3, 0}), std::nullopt)
      .backward();
  EXPECT_TRUE(hidden.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST(LinearCrossEntropy, SaysWhenALabelIsNoClass) {
  const auto text = error_of([] {
    linear_cross_entropy(torch::zeros({2, 3}), torch::zeros({4, 3}), Tensor(),
                         torch::tensor({1, 7}), std::nullopt);
  });
  EXPECT_NE(text.find("labels hold 7, but the model has 4 classes (0 to 3) [G-MODEL-10]"),
            std::string::npos)
      << text;
}

TEST(LinearCrossEntropy, SaysWhenUsedTwice) {
  const auto hidden = torch::randn({5, 3}).requires_grad_();
  const auto loss = linear_cross_entropy(hidden, torch::randn({4, 3}), Tensor(),
                                         torch::tensor({0, 1, 2, 3, 0}), std::nullopt);
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_NE(error_of([&] { loss.backward(); }).find("G-MODEL-12"), std::string::npos);
}

TEST(LinearCrossEntropy, WorksInBfloat16) {
  torch::manual_seed(0);
  const auto x = torch::randn({40, 16}), w = torch::randn({30, 16}) * 0.3;
  const auto labels = torch::randint(0, 30, {40});
  const auto hidden = x.to(torch::kBFloat16).requires_grad_(),
             weight = w.to(torch::kBFloat16).requires_grad_();
  const auto loss = linear_cross_entropy(hidden, weight, Tensor(), labels, std::nullopt);
  loss.backward();
  EXPECT_EQ(loss.scalar_type(), torch::kFloat);
  EXPECT_EQ(weight.grad().scalar_type(), torch::kBFloat16);
  EXPECT_NEAR(loss.item<double>(), token_loss(torch::linear(x, w), labels).item<double>(), 0.03);
}

TEST(RMSNorm, GradientsEqualThoseOfItsFormula) {
  torch::manual_seed(4);
  RMSNorm norm(8, 1e-6);
  {
    torch::NoGradGuard no_grad;
    norm.weight.normal_();
  }
  const auto x = torch::randn({3, 5, 8}).requires_grad_(), seed = torch::randn({3, 5, 8});
  const auto y = x.detach().requires_grad_(), weight = norm.weight.detach().requires_grad_();
  norm.forward(x).backward(seed);
  (weight * (y * torch::rsqrt(y.pow(2).mean(-1, true) + 1e-6))).backward(seed);
  EXPECT_LT(difference(x.grad(), y.grad()), 1e-6);
  EXPECT_LT(difference(norm.weight.grad(), weight.grad()), 1e-5);
}

TEST(Swiglu, GradientsEqualThoseOfItsFormula) {
  torch::manual_seed(5);
  const auto gate = torch::randn({4, 6}).requires_grad_(),
             up = torch::randn({4, 6}).requires_grad_(), seed = torch::randn({4, 6});
  const auto gate2 = gate.detach().requires_grad_(), up2 = up.detach().requires_grad_();
  swiglu(gate, up).backward(seed);
  (torch::silu(gate2) * up2).backward(seed);
  EXPECT_LT(difference(gate.grad(), gate2.grad()), 1e-6);
  EXPECT_LT(difference(up.grad(), up2.grad()), 1e-6);
}

TEST(Activation, UnknownNamesTheNearest) {
  const auto text = error_of([] { activation_named("gelu_knew"); });
  EXPECT_NE(text.find("unknown activation function \"gelu_knew\" [G-MODEL-5]"), std::string::npos)
      << text;
  EXPECT_NE(text.find("gelu_new"), std::string::npos) << text;
}

TEST(Embedding, SaysWhichIdIsOutside) {
  const Embedding table(10, 4);
  const auto text = error_of([&] { table.forward(torch::tensor({{3, 10}})); });
  EXPECT_NE(text.find("input_ids holds 10, but the model's table has 10 rows (0 to 9) [G-MODEL-9]"),
            std::string::npos)
      << text;
}

TEST(AttentionMask, IsAsSimpleAsItsValuesAllow) {
  MaskRequest request;
  request.batch = 2;
  request.queries = request.keys = 4;
  EXPECT_TRUE(make_attention_mask(request).causal);
  request.attention_mask = torch::ones({2, 4}, torch::kLong);
  EXPECT_TRUE(make_attention_mask(request).causal);
  request.attention_mask[1][3] = 0;
  const auto mask = make_attention_mask(request);
  EXPECT_FALSE(mask.causal);
  EXPECT_TRUE(torch::equal(mask.mask[1][0][3], torch::tensor({true, true, true, false})));
  request.causal = false;
  EXPECT_TRUE(torch::equal(make_attention_mask(request).mask[1][0][0],
                           torch::tensor({true, true, true, false})));
  request.attention_mask = torch::ones({2, 3}, torch::kLong);
  const auto text = error_of([&] { make_attention_mask(request); });
  EXPECT_NE(text.find("attention_mask has shape [2, 3], expected [2, 4] [G-MODEL-11]"),
            std::string::npos)
      << text;
}

TEST(AttentionMask, SlidesAndPacks) {
  MaskRequest request;
  request.batch = 1;
  request.queries = 2;
  request.keys = 5;
  request.sliding_window = 3;
  const auto sliding = make_attention_mask(request).mask;
  EXPECT_TRUE(torch::equal(
      sliding[0][0], torch::tensor({0, 1, 1, 1, 0, 0, 0, 1, 1, 1}).view({2, 5}).to(torch::kBool)));
  MaskRequest packed;
  packed.batch = 1;
  packed.queries = packed.keys = 4;
  packed.sequence_ids =
      packed_sequence_ids({{"position_ids", torch::tensor({{0, 1, 0, 1}})}}, 1, 4);
  EXPECT_TRUE(torch::equal(make_attention_mask(packed).mask[0][0],
                           torch::tensor({1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1})
                               .view({4, 4})
                               .to(torch::kBool)));
  const auto by_ends = packed_sequence_ids({{"cu_seq_lens_q", torch::tensor({0, 2, 4})}}, 1, 4);
  EXPECT_TRUE(
      torch::equal(by_ends[0].eq(by_ends[0][0]), torch::tensor({true, true, false, false})));
  EXPECT_FALSE(
      packed_sequence_ids({{"position_ids", torch::tensor({{3, 4, 5, 6}})}}, 1, 4).defined());
}

TEST(AttentionMask, AWindowIsANumberWhereTheKernelTakesIt) {
  MaskRequest request{.batch = 2, .queries = 6, .keys = 6};
  request.sliding_window = 3;
  request.takes_window = true;
  const auto mask = make_attention_mask(request);
  EXPECT_TRUE(mask.causal && !mask.mask.defined());
  EXPECT_EQ(mask.window, 3);
  request.sliding_window = 7;  // all keys are in it
  EXPECT_FALSE(make_attention_mask(request).window.has_value());
  request.sliding_window = 3;
  request.attention_mask = torch::tensor({{1, 1, 1, 1, 1, 1}, {0, 1, 1, 1, 1, 1}});
  EXPECT_TRUE(make_attention_mask(request).mask.defined()) << "padding is not a number";
  request.attention_mask = Tensor();
  request.queries = 2;
  EXPECT_TRUE(make_attention_mask(request).mask.defined()) << "tokens of a cache come before";
  request.queries = 6;
  request.causal = false;
  EXPECT_TRUE(make_attention_mask(request).mask.defined()) << "later keys are seen, too";
}

TEST(Attention, WeightsAndOutputAgreeWithTheFastPath) {
  torch::manual_seed(6);
  const auto q = torch::randn({2, 4, 5, 8}), k = torch::randn({2, 2, 5, 8}),
             v = torch::randn({2, 2, 5, 8});
  Tensor weights;
  AttentionOptions options;
  const AttentionMask causal{{}, true};
  const auto fast = attention(q, k, v, causal, options);
  options.weights = &weights;
  const auto slow = attention(q, k, v, causal, options);
  EXPECT_LT(difference(fast, slow), 1e-6);
  EXPECT_EQ(weights.sizes(), (torch::IntArrayRef{2, 4, 5, 5}));
  EXPECT_LT(difference(weights.sum(-1), torch::ones({2, 4, 5})), 1e-6);
}

TEST(Attention, WithDropoutHasTheBitsOfATen) {
  for (const int kind : {0, 1, 2, 3}) {  // nothing, a bias, a mask, only earlier keys
    Tensor results[2];
    std::vector<Tensor> gradients[2];
    for (int form = 0; form < 2; ++form) {
      torch::manual_seed(9);
      const auto q = torch::randn({3, 17, 4, 24}, torch::requires_grad()),
                 k = torch::randn({3, kind == 3 ? 17 : 21, 4, 24}, torch::requires_grad()),
                 v = torch::randn({3, kind == 3 ? 17 : 21, 4, 24}, torch::requires_grad());
      const auto bias = torch::randn({1, 4, 17, 21}, torch::requires_grad());
      auto seen = torch::rand({3, 1, 17, 21}) < 0.7;
      seen[1][0][3].fill_(false);
      const auto heads = [](const Tensor& x) { return x.transpose(1, 2); };
      AttentionOptions options;
      options.dropout = 0.1;
      if (kind == 1) options.position_bias = bias;
      if (kind == 1) options.scale = 1.0;
      const auto added = kind == 1   ? std::optional(bias)
                         : kind == 2 ? std::optional(seen)
                                     : std::nullopt;
      const AttentionMask mask{kind == 2 ? seen : Tensor(), kind == 3};
      results[form] =
          form == 0 ? attention(heads(q), heads(k), heads(v), mask, options)
                    : heads(at::scaled_dot_product_attention(heads(q), heads(k), heads(v), added,
                                                             0.1, kind == 3, options.scale))
                          .reshape({3, 17, -1});
      results[form].square().sum().backward();
      gradients[form] = {q.grad(), k.grad(), v.grad()};
      if (kind == 1) gradients[form].push_back(bias.grad());
    }
    EXPECT_TRUE(torch::equal(results[0], results[1])) << kind;
    for (size_t i = 0; i < gradients[0].size(); ++i)
      EXPECT_TRUE(torch::equal(gradients[0][i], gradients[1][i])) << kind << " " << i;
  }
}

TEST(KeyValueCache, GrowsAndReorders) {
  KeyValueCache cache;
  const auto all = torch::randn({2, 1, 150, 4});
  cache.update(0, all.narrow(2, 0, 3), all.narrow(2, 0, 3));
  for (int64_t i = 3; i < 150; ++i) cache.update(0, all.narrow(2, i, 1), all.narrow(2, i, 1));
  EXPECT_EQ(cache.length(), 150);
  const auto states = cache.update(0, all.narrow(2, 0, 0), all.narrow(2, 0, 0));
  EXPECT_TRUE(torch::equal(states.keys, all));
  EXPECT_FALSE(states.rows.defined());
}

/// Attention over a cache whose rows were selected again and again, and over what it should hold.
double difference_after_selections(torch::Dtype dtype, int64_t queries, int64_t width) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(8);
  KeyValueCache cache;
  Tensor keys, values, output, expected;
  int64_t rows = 6;
  for (int64_t token = 0; token < 150; ++token) {
    const auto key = torch::randn({rows, 2, 1, width}).to(dtype),
               value = torch::randn({rows, 2, 1, width}).to(dtype);
    keys = keys.defined() ? torch::cat({keys, key}, 2) : key;
    values = values.defined() ? torch::cat({values, value}, 2) : value;
    const auto states = cache.update(0, key, value);
    AttentionOptions options;
    options.key_rows = states.rows;
    const AttentionMask mask{torch::rand({rows, 1, queries, token + 1}) < 0.9};
    mask.mask.select(3, 0).fill_(true);  // each query sees something
    const auto query = torch::randn({rows, 4, queries, width}).to(dtype);
    output = attention(query, states.keys, states.values, mask, options);
    expected = attention(query, keys, values, mask);
    if (difference(output, expected) > 1e-2) return 1.0;
    rows = token == 40 ? 4 : token == 80 ? 7 : rows;  // some leave, and others are there twice
    const auto selected = torch::randint(keys.size(0), {rows}, torch::kLong);
    cache.select_rows(selected);
    keys = keys.index_select(0, selected);
    values = values.index_select(0, selected);
  }
  return difference(output, expected);
}

TEST(KeyValueCache, RowsThatAreSelectedNeedNoCopies) {
  EXPECT_LT(difference_after_selections(torch::kFloat, 1, 64), 1e-6);
  EXPECT_LT(difference_after_selections(torch::kFloat, 1, 21), 1e-6);
  EXPECT_LT(difference_after_selections(torch::kFloat, 3, 16), 1e-6);
  EXPECT_EQ(difference_after_selections(torch::kBFloat16, 1, 16), 0.0);
}

TEST(Dropout, DrawsTheNumbersOfATen) {
  const auto generator = at::detail::getDefaultCPUGenerator();
  for (const double p : {0.1, 0.25, 0.9}) {
    for (const auto& x : {torch::randn({1}), torch::randn({7, 3}), torch::randn({5, 64, 40}),
                          torch::randn({30, 40}).t(), torch::randn({30, 40}).slice(1, 0, 40, 3)}) {
      for (const int64_t before : {0, 1}) {  // words of 32 bits that were drawn before
        Tensor results[2], gradients[2], states[2];
        for (int form = 0; form < 2; ++form) {
          torch::manual_seed(21);
          if (before == 1) torch::rand({1});
          const auto input = x.detach().clone().requires_grad_();
          const auto given = x.is_contiguous() ? input : input.t().contiguous().t();
          results[form] = form == 0 ? layers::dropout(given, p, true) : at::dropout(given, p, true);
          results[form].square().sum().backward();
          gradients[form] = input.grad();
          states[form] = generator.get_state();
        }
        EXPECT_TRUE(torch::equal(results[0], results[1])) << p << x.sizes();
        EXPECT_EQ(results[0].strides(), results[1].strides());
        EXPECT_TRUE(torch::equal(gradients[0], gradients[1])) << p << x.sizes();
        EXPECT_TRUE(torch::equal(states[0], states[1])) << p << x.sizes();
      }
    }
  }
}

TEST(Checkpoint, RepeatsTheRandomNumbers) {
  const auto weight = torch::randn({6, 6}).requires_grad_();
  const auto block = [&](const Tensor& x) {
    return torch::dropout(torch::linear(x, weight).relu(), 0.5, true);
  };
  const auto x = torch::randn({8, 6}).requires_grad_();
  torch::manual_seed(9);
  block(block(x)).sum().backward();
  const auto grad_x = x.grad().clone(), grad_weight = weight.grad().clone(), after = torch::rand(3);
  x.mutable_grad() = Tensor();
  weight.mutable_grad() = Tensor();
  torch::manual_seed(9);
  checkpoint(block, checkpoint(block, x)).sum().backward();
  EXPECT_TRUE(torch::equal(torch::rand(3), after));
  EXPECT_TRUE(torch::equal(x.grad(), grad_x));
  EXPECT_TRUE(torch::equal(weight.grad(), grad_weight));
}

TEST(NoDropout, AlsoHoldsForTheBlocksThatBackwardRepeats) {
  const auto weight = torch::ones({6, 6}).requires_grad_();
  const auto block = [&](const Tensor& x) {
    return layers::dropout(torch::linear(x, weight), 0.5, true);
  };
  const auto x = torch::ones({8, 6});
  EXPECT_FALSE(torch::equal(block(x), torch::linear(x, weight)));
  Tensor y;
  {
    const NoDropout guard;
    y = checkpoint(block, x);
  }
  EXPECT_TRUE(torch::equal(y, torch::linear(x, weight)));
  y.sum().backward();
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({6, 6}, 8.0)));
  EXPECT_FALSE(NoDropout::is_on());
}

TEST(Checkpoint, TrainsParametersBehindAFrozenInput) {
  const auto weight = torch::randn({3, 3}).requires_grad_();
  checkpoint([&](const Tensor& x) { return torch::linear(x, weight); }, torch::randn({2, 3}))
      .sum()
      .backward();
  EXPECT_TRUE(weight.grad().defined());
}

TEST(Checkpoint, LeavesNoCastsBehind) {
  const auto weight = torch::randn({3, 3}).requires_grad_(),
             x = torch::randn({2, 3}).requires_grad_();
  const auto under_autocast = [&](const auto& work) {
    at::autocast::set_autocast_enabled(torch::kCPU, true);
    at::autocast::increment_nesting();
    auto y = work();
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(torch::kCPU, false);
    return y;
  };
  const auto block = [&](const Tensor& given) { return torch::linear(given, weight); };
  under_autocast([&] { return checkpoint(block, x); }).sum().backward();
  const auto grad = weight.grad().clone();
  {
    const torch::NoGradGuard no_grad;
    weight.zero_();
  }
  EXPECT_EQ(under_autocast([&] { return block(x); }).abs().max().item<double>(), 0)
      << "the weight of an earlier step";
  weight.mutable_grad() = Tensor();
  under_autocast([&] { return checkpoint(block, x) + block(x); }).sum().backward();
  EXPECT_TRUE(torch::equal(weight.grad(), 2 * grad)) << "a cast without history";
}

TEST(Checkpoint, OnlyTheFirstOfEveryNBlocksIsRecomputed) {
  struct Body : Backbone {
    BackboneOutput forward(const BackboneInputs&) override { return {}; }
    layers::Embedding& input_embeddings() override { throw std::logic_error("none"); }
    int64_t hidden_size() const override { return 1; }
    std::string blocks() const {
      std::string found;
      for (size_t i = 0; i < 7; ++i) found += recomputes(i, 7) ? '1' : '0';
      return found;
    }
  } body;
  EXPECT_EQ(body.blocks(), "0000000");
  body.gradient_checkpointing.emplace();
  EXPECT_EQ(body.blocks(), "1111111");
  body.gradient_checkpointing->every_n_layers = 3;
  EXPECT_EQ(body.blocks(), "1001001");
  EXPECT_EQ(body.gradient_checkpointing->recomputed(7), 3);
  *body.gradient_checkpointing = {.memory_budget = 0.5};
  EXPECT_EQ(body.blocks(), "1111000");
  body.eval();
  EXPECT_EQ(body.blocks(), "0000000");
}

TEST(EmbeddingNoise, HasNeftunesSize) {
  torch::manual_seed(0);
  const auto noise = add_embedding_noise(torch::zeros({4, 25, 16}), 5.0);
  const auto size = 5.0 / std::sqrt(25.0 * 16.0);
  EXPECT_LE(noise.abs().max().item<double>(), size);
  EXPECT_NEAR(noise.std().item<double>(), size / std::sqrt(3.0), 0.01);
}

TEST(RotaryEmbedding, RefusesWhatItDoesNotKnow) {
  const auto with = [](nlohmann::json rope) {
    return error_of([&] { RotaryEmbedding({{"rope_parameters", rope}}, 8); });
  };
  EXPECT_NE(with({{"rope_type", "spiral"}})
                .find("config.json: rope_parameters: rope_type must be default, linear, dynamic, "
                      "llama3, longrope, proportional or yarn, received \"spiral\" [G-MODEL-5]"),
            std::string::npos);
  EXPECT_NE(with({{"rope_type", "linear"}}).find("factor must be given, received nothing"),
            std::string::npos);
  EXPECT_NE(with({{"rope_type", "linear"}, {"factor", std::nan("")}})
                .find("factor must be a finite number"),
            std::string::npos);
  EXPECT_NE(with({{"rope_type", "longrope"}, {"short_factor", {1.0, 1.0}}})
                .find("short_factor must be a list of 4 finite numbers above 0, one per pair of "
                      "rotated channels, received 2 entries"),
            std::string::npos);
  EXPECT_NE(with({{"full_attention", {{"rope_type", "linear"}, {"factor", 2.0}}}})
                .find("config.json: rope_parameters must be one set of numbers for all layers, "
                      "received one for full_attention of its own"),
            std::string::npos);
}

}  // namespace
}  // namespace gradus::layers
