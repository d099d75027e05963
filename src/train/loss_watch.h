#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace gradus {

/// Finds steps whose loss is not finite or far above those before.
///
/// Losses are collected on the run's device, which nobody waits for; `look` reads them all at once.
/// A loss is a spike when it lies more than `threshold` standard deviations above the median of the
/// last 64 steps that were none. The deviation follows from the median distance to the median and
/// counts as at least 5 % of it and a thousandth of the median of the first 16 losses. Nothing is a
/// spike before 16 steps, unless it is not finite. A step whose gradient is not finite counts as
/// one whose loss is not: its update would spoil the weights.
class LossWatch {
 public:
  /// A step: the pass and its first batch.
  using Place = std::pair<int64_t, int64_t>;

  /// A step that was a spike, and what was usual.
  struct Spike {
    Place place;
    double loss = 0, usual = 0, deviation = 0;
  };

  LossWatch(torch::Device device, double threshold);

  /// Adds the loss of a micro-batch to the step under way.
  void add(const torch::Tensor& loss);
  /// The gradient norm of the step under way, on the run's device. A finite one changes nothing.
  void add_norm(const torch::Tensor& norm);
  /// The step under way is over.
  void end_step(Place place);
  /// Whether the step under way is a spike. Waits for the device. Either way it is judged, and no
  /// later look sees it.
  std::optional<Spike> take_current(Place place);
  /// How many steps wait for a look.
  size_t pending() const { return pending_.size(); }
  /// Whether so many steps wait that the next one would push them out.
  bool is_full() const { return pending_.size() >= kMostPending; }
  /// The first spike among the steps since the last look; they are then forgotten. Without one, all
  /// of them count as usual. Waits for the device.
  std::optional<Spike> look();
  /// The same; spikes count as usual from then on, as far as the threshold. For those who only want
  /// to know.
  std::optional<Spike> look_and_go_on();
  /// Forgets the steps since the last look.
  void drop();
  /// Forgets the step under way, which is not finished.
  void drop_current();

  /// Steps that are left out.
  const std::set<Place>& left_out() const { return left_out_; }
  /// Leaves out a step from now on.
  void leave_out(Place place) { left_out_.insert(place); }
  /// Replaces those that are left out.
  void set_left_out(std::set<Place> places) { left_out_ = std::move(places); }
  /// How many steps in a row are left out right before this one, in its pass; a step has `window`
  /// batches.
  int64_t left_out_before(Place place, int64_t window) const;
  /// How many steps in a row `take_current` has found to be spikes.
  int64_t taken_in_a_row() const { return taken_in_a_row_; }
  /// Takes the losses that come now for the usual ones: the level has changed.
  void begin_anew();

  /// What a checkpoint keeps. Nothing may be pending.
  nlohmann::json state() const;
  void load(const nlohmann::json& state);

 private:
  static constexpr size_t kMostPending = 4096;
  std::vector<double> pending_losses() const;
  std::optional<Spike> judge(Place place, double loss) const;
  void accept(double loss);

  torch::Device device_;
  double threshold_;
  std::deque<double> usual_;
  size_t accepted_ = 0;  // losses that were usual, since the level was last taken anew
  int64_t taken_in_a_row_ = 0;
  double first_level_ = 0;  // the median of the first of them
  std::vector<Place> pending_;
  std::vector<double> on_host_;  // of the pending steps and the one under way, on a CPU
  torch::Tensor on_device_;      // the same elsewhere
  bool is_judged_ = false;       // the step under way
  std::set<Place> left_out_;
};

}  // namespace gradus
