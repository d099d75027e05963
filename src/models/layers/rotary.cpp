#include <gradus/core/json.h>
#include <gradus/kernels/fused.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/layers/rotary.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace gradus::layers {

using torch::Tensor;

namespace {

Tensor wave_frequencies(double base, int64_t width) {
  return at::pow(base, at::arange(0, width, 2, torch::kLong).to(torch::kFloat) /
                           static_cast<double>(width))
      .reciprocal();
}

Tensor llama3_frequencies(const Tensor& plain, const ConfigReader& rope, double trained_length) {
  const auto factor = rope.number("factor", std::nullopt, 1e-6),
             low = rope.number("low_freq_factor", std::nullopt),
             high = rope.number("high_freq_factor", std::nullopt);
  const auto wavelength = 2.0 * std::numbers::pi / plain;
  const auto scaled = at::where(wavelength > trained_length / low, plain / factor, plain);
  const auto smooth = (trained_length / wavelength - low) / (high - low);
  const auto smoothed = (1 - smooth) * scaled / factor + smooth * scaled;
  const auto medium = (wavelength < trained_length / high)
                          .logical_not_()
                          .logical_and_((wavelength > trained_length / low).logical_not_());
  return at::where(medium, smoothed, scaled);
}

double yarn_scale(double factor, double mscale = 1.0) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Tensor yarn_frequencies(double base, int64_t width, const ConfigReader& rope, double factor,
                        double trained_length) {
  const auto fast = rope.optional_number("beta_fast").value_or(32.0),
             slow = rope.optional_number("beta_slow").value_or(1.0);
  const auto dimension = [&](double rotations) {
    return static_cast<double>(width) *
           std::log(trained_length / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(base));
  };
  double low = dimension(fast == 0.0 ? 32.0 : fast), high = dimension(slow == 0.0 ? 1.0 : slow);
  if (rope.flag("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(width - 1));
  if (low == high) high += 0.001;
  const auto ramp = ((at::arange(width / 2, torch::kFloat) - low) / (high - low)).clamp_(0, 1);
  const auto extrapolated = wave_frequencies(base, width);
  const auto waves = at::pow(
      base, at::arange(0, width, 2, torch::kLong).to(torch::kFloat) / static_cast<double>(width));
  const auto interpolated = (waves * factor).reciprocal();
  const auto share = 1 - ramp;
  return interpolated * (1 - share) + extrapolated * share;
}

/// Pairs beyond the rotated share stand still.
Tensor proportional_frequencies(double base, int64_t width, const ConfigReader& rope) {
  const auto turning = static_cast<int64_t>(std::floor(
      rope.number("partial_rotary_factor", 1.0, 0.0, 1.0) * static_cast<double>(width) / 2.0));
  const auto pairs = at::arange(width / 2, torch::kLong);
  return at::where(pairs < turning, wave_frequencies(base, width), 0.0) /
         rope.number("factor", 1.0, 1e-6);
}

/// One factor per pair of channels, by which its wave becomes longer.
Tensor longrope_frequencies(double base, int64_t width, const ConfigReader& rope,
                            const char* name) {
  const auto* given = rope.find(name);
  std::vector<double> factors;
  const auto expected = fmt::format(
      "a list of {} finite numbers above 0, one per pair of rotated channels", width / 2);
  if (given == nullptr || !given->is_array() || static_cast<int64_t>(given->size()) != width / 2)
    rope.fail(name, expected,
              given == nullptr    ? "nothing"
              : given->is_array() ? fmt::format("{} entries", given->size())
                                  : std::string("something else"));
  for (const auto& factor : *given) {
    if (!factor.is_number() || !std::isfinite(factor.get<double>()) || factor.get<double>() <= 0.0)
      rope.fail(name, expected, dump_json(factor));
    factors.push_back(factor.get<double>());
  }
  const auto waves = at::pow(
      base, at::arange(0, width, 2, torch::kLong).to(torch::kFloat) / static_cast<double>(width));
  return (torch::tensor(factors, torch::kFloat) * waves).reciprocal();
}

/// `rope_parameters`, or the older `rope_scaling` with `rope_theta` beside it.
nlohmann::json rope_parameters(const nlohmann::json& config) {
  nlohmann::json rope = nlohmann::json::object();
  for (const auto* name : {"rope_scaling", "rope_parameters"}) {
    const auto found = config.find(name);
    if (found != config.end() && found->is_object() && !found->empty()) {
      rope = *found;
      for (const auto& [key, value] : rope.items())
        if (value.is_object())
          ConfigReader(config).fail(name, "one set of numbers for all layers",
                                    fmt::format("one for {} of its own", key));
      break;
    }
  }
  for (const auto* name : {"rope_theta", "partial_rotary_factor"}) {
    const auto found = config.find(name);
    if (found != config.end() && !found->is_null() && !rope.contains(name)) rope[name] = *found;
  }
  if (!rope.contains("rope_type"))
    rope["rope_type"] = rope.contains("type") ? rope["type"] : nlohmann::json("default");
  return rope;
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(const nlohmann::json& config, int64_t head_width,
                                 int64_t default_positions) {
  const auto values = rope_parameters(config);
  const ConfigReader rope(values, "config.json: rope_parameters"), model(config);
  const auto kind = rope.text("rope_type", "default");
  base_ = rope.number("rope_theta", 10000.0, 1e-6);
  const auto share = kind == "default" || kind == "proportional"
                         ? 1.0
                         : rope.number("partial_rotary_factor", 1.0, 0.0, 1.0);
  width_ = static_cast<int64_t>(static_cast<double>(head_width) * share);
  if (width_ < 2 || width_ % 2 != 0)
    rope.fail("the rotated width of a head", "an even number of at least 2",
              std::to_string(width_));
  const auto positions = model.integer("max_position_embeddings", default_positions);
  const auto trained = static_cast<double>(
      model.optional_integer("original_max_position_embeddings")
          .value_or(rope.optional_integer("original_max_position_embeddings").value_or(positions)));
  trained_length_ = longest_ = positions;
  inverse_frequencies_ = wave_frequencies(base_, width_);
  if (kind == "linear") {
    inverse_frequencies_.div_(rope.number("factor", std::nullopt, 1e-6));
  } else if (kind == "dynamic") {
    dynamic_ = true;
    factor_ = rope.number("factor", std::nullopt, 1e-6);
  } else if (kind == "llama3") {
    inverse_frequencies_ = llama3_frequencies(inverse_frequencies_, rope, trained);
  } else if (kind == "yarn") {
    const auto factor =
        rope.optional_number("factor").value_or(static_cast<double>(positions) / trained);
    const auto mscale = rope.optional_number("mscale").value_or(0.0),
               mscale_all = rope.optional_number("mscale_all_dim").value_or(0.0);
    const auto implied = mscale != 0.0 && mscale_all != 0.0
                             ? yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all)
                             : yarn_scale(factor);
    attention_factor_ = rope.optional_number("attention_factor").value_or(implied);
    inverse_frequencies_ = yarn_frequencies(base_, width_, rope, factor, trained);
  } else if (kind == "longrope") {
    const auto factor =
        rope.optional_number("factor").value_or(static_cast<double>(positions) / trained);
    const auto implied =
        factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(trained));
    attention_factor_ = rope.optional_number("attention_factor").value_or(implied);
    if (!std::isfinite(attention_factor_))
      rope.fail("original_max_position_embeddings", "more than 1",
                std::to_string(static_cast<int64_t>(trained)));
    inverse_frequencies_ = longrope_frequencies(base_, width_, rope, "short_factor");
    beyond_ = longrope_frequencies(base_, width_, rope, "long_factor");
    trained_length_ = static_cast<int64_t>(trained);
  } else if (kind == "proportional") {
    inverse_frequencies_ = proportional_frequencies(base_, width_, rope);
  } else if (kind != "default") {
    rope.fail("rope_type", "default, linear, dynamic, llama3, longrope, proportional or yarn",
              "\"" + kind + "\"");
  }
  original_ = inverse_frequencies_;
}

RotaryEmbedding::Angles RotaryEmbedding::angles(const Tensor& position_ids, torch::Dtype dtype,
                                                std::optional<int64_t> known_length) {
  torch::NoGradGuard no_grad;
  if (dynamic_) {
    const auto length = known_length ? *known_length : position_ids.max().item<int64_t>() + 1;
    if (length > longest_) {
      const auto grown =
          factor_ * static_cast<double>(length) / static_cast<double>(trained_length_) -
          (factor_ - 1.0);
      inverse_frequencies_ = wave_frequencies(
          base_ * std::pow(grown, static_cast<double>(width_) / static_cast<double>(width_ - 2)),
          width_);
      longest_ = length;
      on_device_ = Tensor();
    } else if (length < trained_length_ && longest_ > trained_length_) {
      inverse_frequencies_ = original_;
      longest_ = trained_length_;
      on_device_ = Tensor();
    }
  }
  if (!on_device_.defined() || on_device_.device() != position_ids.device())
    on_device_ = inverse_frequencies_.to(position_ids.device());
  auto frequencies = on_device_;
  if (beyond_.defined()) {
    if (beyond_.device() != position_ids.device()) beyond_ = beyond_.to(position_ids.device());
    if (known_length)
      frequencies = *known_length > trained_length_ ? beyond_ : on_device_;
    else
      frequencies = at::where(position_ids.max() >= trained_length_, beyond_, on_device_);
  }
  const auto phases = position_ids.unsqueeze(-1).to(torch::kFloat) * frequencies;
  auto cos = phases.cos(), sin = phases.sin();
  if (attention_factor_ != 1.0) {
    cos.mul_(attention_factor_);
    sin.mul_(attention_factor_);
  }
  if (cos.is_cuda()) dtype = torch::kFloat;  // the kernel rounds only its result
  return {cos.to(dtype).unsqueeze(2), sin.to(dtype).unsqueeze(2)};
}

RotatedStates apply_rotary(const Tensor& query, const Tensor& key,
                           const RotaryEmbedding::Angles& angles) {
  auto rotated = kernels::rotary(query, key, angles.cos, angles.sin);
  return {rotated.query, rotated.key};
}

}  // namespace gradus::layers
