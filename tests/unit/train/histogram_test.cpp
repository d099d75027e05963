// Histograms against torch's SummaryWriter (tests/parity/train/histograms.json), and their way from
// a run to a tracker.
#include <gradus/core/json.h>
#include <gradus/trackers/tracker.h>

#include "regression.h"
#include "train/histogram.h"

namespace gradus::testing {
namespace {

TEST(Histograms, AreThoseOfTorch) {
  const auto fixture =
      read_json(fs::path(GRADUS_SOURCE_DIR) / "tests/parity/train/histograms.json");
  for (const auto& each : fixture["cases"]) {
    const auto values = torch::tensor(each["values"].get<std::vector<double>>(), torch::kDouble);
    const auto found = histogram_of(values);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->min, each["min"].get<double>());
    EXPECT_EQ(found->max, each["max"].get<double>());
    EXPECT_NEAR(found->sum, each["sum"].get<double>(), 1e-9 * std::abs(found->sum));
    EXPECT_NEAR(found->sum_squares, each["sum_squares"].get<double>(), 1e-9 * found->sum_squares);
    const auto near = [](double a, double b) { EXPECT_NEAR(a, b, 1e-12 * std::abs(b)); };
    near(found->limits.front(), each["first_limit"]);
    near(found->limits.back(), each["last_limit"]);
    ASSERT_EQ(found->counts.size(), each["buckets"].get<size_t>());
    ASSERT_EQ(found->limits.size(), found->counts.size());
    for (size_t i = 0; i < found->counts.size(); ++i)
      EXPECT_EQ(found->counts[i], each["counts"].value(std::to_string(i), 0.0)) << i;
  }
}

TEST(Histograms, LeaveOutWhatIsNotFinite) {
  const auto found = histogram_of(torch::tensor(std::vector<double>{1.0, INFINITY, NAN, 2.0}));
  EXPECT_EQ(found->max, 2.0);
  EXPECT_FALSE(histogram_of(torch::tensor(std::vector<double>{NAN})));
}

struct Heard : Tracker {
  std::map<std::string, std::vector<int64_t>> steps;
  bool takes_histograms() const override { return true; }
  void log(const std::map<std::string, double>&, int64_t) override {}
  void log_histogram(const std::string& name, const Histogram&, int64_t step) override {
    steps[name].push_back(step);
  }
};

TEST(Histograms, AreLoggedEverySoManySteps) {
  Box box;
  const auto tracker = std::make_shared<Heard>();
  Trainer trainer(regression(box, {.max_steps = 7, .save_strategy = "no", .log_histograms = 3}));
  trainer.add_callback(std::make_shared<TrackerCallback>("heard", tracker));
  trainer.train();
  const std::vector<int64_t> steps = {3, 6};
  EXPECT_EQ(tracker->steps, (std::map<std::string, std::vector<int64_t>>{{"weights/a", steps},
                                                                         {"weights/b", steps},
                                                                         {"gradients/a", steps},
                                                                         {"gradients/b", steps}}));
}

}  // namespace
}  // namespace gradus::testing
