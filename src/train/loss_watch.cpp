#include "train/loss_watch.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace gradus {
namespace {

constexpr size_t kUsualSteps = 64;
constexpr size_t kFewestSteps = 16;
constexpr double kLeastDeviation = 0.05;         // of the median
constexpr double kLeastOfFirst = 0.001;          // of the median of the first losses
constexpr double kDistanceToDeviation = 1.4826;  // for normal numbers

double middle_value(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

LossWatch::LossWatch(torch::Device device, double threshold)
    : device_(device), threshold_(threshold), on_host_(1) {
  if (!device_.is_cpu())
    on_device_ =
        torch::zeros({int64_t(kMostPending) + 1}, torch::dtype(torch::kFloat).device(device_));
}

void LossWatch::add(const torch::Tensor& loss) {
  if (device_.is_cpu()) {
    on_host_.back() += loss.item<double>();
    return;
  }
  const torch::NoGradGuard no_grad;
  on_device_[int64_t(pending_.size())] += loss.to(torch::kFloat);
}

void LossWatch::add_norm(const torch::Tensor& norm) {
  const torch::NoGradGuard no_grad;
  add(norm.detach().reshape({}) * 0);  // 0 where it is finite, else not a number
}

void LossWatch::end_step(Place place) {
  if (std::exchange(is_judged_, false)) return;
  if (is_full()) drop();  // nobody looked
  pending_.push_back(place);
  if (device_.is_cpu()) on_host_.push_back(0);
}

std::optional<LossWatch::Spike> LossWatch::judge(Place place, double loss) const {
  // The median and the median distance to it: an early spike must not hide the later ones.
  std::vector<double> values(usual_.begin(), usual_.end());
  const double median = middle_value(values);
  for (auto& value : values) value = std::abs(value - median);
  // Where everything has been learned losses are nearly zero, and differ by rounding alone.
  const double deviation =
      std::max({kDistanceToDeviation * middle_value(values), kLeastDeviation * std::abs(median),
                kLeastOfFirst * first_level_});
  const bool is_high =
      usual_.size() >= kFewestSteps && deviation > 0 && loss > median + threshold_ * deviation;
  if (std::isfinite(loss) && !is_high) return std::nullopt;
  return Spike{place, loss, median, deviation};
}

void LossWatch::accept(double loss) {
  usual_.push_back(loss);
  if (usual_.size() > kUsualSteps) usual_.pop_front();
  if (++accepted_ == kFewestSteps)
    first_level_ = std::abs(middle_value({usual_.begin(), usual_.end()}));
}

std::optional<LossWatch::Spike> LossWatch::take_current(Place place) {
  const auto now = int64_t(pending_.size());
  const double loss =
      device_.is_cpu() ? on_host_.back() : on_device_[now].to(torch::kCPU).item<double>();
  const auto spike = judge(place, loss);
  taken_in_a_row_ = spike ? taken_in_a_row_ + 1 : 0;
  if (!spike) accept(loss);
  drop_current();
  is_judged_ = true;
  return spike;
}

std::vector<double> LossWatch::pending_losses() const {
  if (device_.is_cpu()) return {on_host_.begin(), on_host_.end() - 1};
  const auto all = on_device_.to(torch::kCPU);
  const auto* values = all.const_data_ptr<float>();
  return {values, values + pending_.size()};
}

std::optional<LossWatch::Spike> LossWatch::look() {
  const auto losses = pending_losses();
  for (size_t i = 0; i < losses.size(); ++i) {
    if (auto spike = judge(pending_[i], losses[i])) return drop(), spike;
    accept(losses[i]);
  }
  drop();
  return std::nullopt;
}

std::optional<LossWatch::Spike> LossWatch::look_and_go_on() {
  std::optional<Spike> first;
  const auto losses = pending_losses();
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto spike = judge(pending_[i], losses[i]);
    if (!spike)
      accept(losses[i]);
    else if (std::isfinite(spike->loss))
      accept(spike->usual + threshold_ * spike->deviation);
    if (spike && !first) first = spike;
  }
  drop();
  return first;
}

int64_t LossWatch::left_out_before(Place place, int64_t window) const {
  int64_t count = 0;
  while (left_out_.contains({place.first, place.second - (count + 1) * window})) ++count;
  return count;
}

void LossWatch::begin_anew() {
  usual_.clear();
  accepted_ = 0;
  first_level_ = 0;
  taken_in_a_row_ = 0;
}

void LossWatch::drop_current() {
  if (device_.is_cpu())
    on_host_.back() = 0;
  else
    on_device_[int64_t(pending_.size())].zero_();
}

void LossWatch::drop() {
  pending_.clear();
  on_host_.assign(1, 0.0);
  if (!device_.is_cpu()) on_device_.zero_();
}

nlohmann::json LossWatch::state() const {
  return {{"usual", std::vector<double>(usual_.begin(), usual_.end())},
          {"accepted", accepted_},
          {"first_level", first_level_},
          {"taken_in_a_row", taken_in_a_row_},
          {"left_out", std::vector<Place>(left_out_.begin(), left_out_.end())}};
}

void LossWatch::load(const nlohmann::json& state) {
  drop();
  const auto usual = state.at("usual").get<std::vector<double>>();
  usual_.assign(usual.begin(), usual.end());
  // Files of early versions do not have these.
  accepted_ = state.value("accepted", usual_.size());
  first_level_ = state.value("first_level", 0.0);
  taken_in_a_row_ = state.value("taken_in_a_row", int64_t{0});
  const auto places = state.at("left_out").get<std::vector<Place>>();
  left_out_ = {places.begin(), places.end()};
}

}  // namespace gradus
