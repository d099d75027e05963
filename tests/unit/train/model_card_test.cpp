// The README.md of a saved folder: its text and the picture of the curves in it.
#include <gradus/core/files.h>

#include "regression.h"
#include "runs/curve_picture.h"

namespace gradus::testing {
namespace {

struct Card {
  std::string text, picture;
};

Card card_of(const Trainer& trainer, const Box& box) {
  fs::create_directories(box.run());
  trainer.create_model_card();
  const auto picture = box.run() / "training_curves.png";
  return {read_file(box.run() / "README.md"), fs::exists(picture) ? read_file(picture) : ""};
}

/// The picture of these metrics of a log, a chart each.
std::string picture_of(const LogHistory& history, const std::vector<std::string>& keys) {
  std::vector<runs::PictureChart> charts;
  for (const auto& key : keys) {
    runs::Series series;
    for (const auto& entry : history)
      if (entry.contains(key)) series.add(entry["step"], entry[key].get<double>(), 0);
    charts.push_back({key, {{key, series.curve({.points = 1000})}}});
  }
  return runs::curve_picture(charts);
}

constexpr const char* kLink = "![Training curves](training_curves.png)";

TEST(ModelCard, ShowsTheCurvesOfTheRun) {
  Box box;
  auto options = regression(box, {.max_steps = 6,
                                  .logging_steps = 1,
                                  .eval_strategy = "steps",
                                  .eval_steps = 2,
                                  .save_strategy = "no"});
  options.compute_metrics = almost_accuracy;
  Trainer trainer(std::move(options));
  trainer.train();
  const auto card = card_of(trainer, box);
  const auto results = card.text.find("### Training results");
  const auto link = card.text.find(kLink);
  ASSERT_NE(link, std::string::npos) << card.text;
  EXPECT_GT(link, results);
  EXPECT_LT(link, card.text.find("| Training Loss |"));
  EXPECT_TRUE(card.picture.starts_with("\x89PNG\r\n"));
  // Losses and scores, no speeds; nothing else.
  EXPECT_EQ(card.picture,
            picture_of(trainer.state().log_history, {"loss", "eval_loss", "eval_accuracy"}));

  // The next card shows how the run went on.
  trainer.train();
  const auto later = card_of(trainer, box);
  EXPECT_NE(later.picture, card.picture);
  EXPECT_EQ(later.picture,
            picture_of(trainer.state().log_history, {"loss", "eval_loss", "eval_accuracy"}));
}

TEST(ModelCard, HasNoPictureWithoutAPoint) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 2, .logging_strategy = "no"}));
  trainer.train();
  const auto card = card_of(trainer, box);
  EXPECT_EQ(card.text.find(kLink), std::string::npos) << card.text;
  EXPECT_NE(card.text.find("### Training results"), std::string::npos);
  EXPECT_EQ(card.picture, "");
}

TEST(ModelCard, LeavesOutValuesThatAreNoNumbers) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 2, .save_strategy = "no"}));
  trainer.train();
  trainer.state().log_history = {{{"step", 1}, {"loss", NAN}}, {{"step", 2}, {"loss", NAN}}};
  EXPECT_EQ(card_of(trainer, box).text.find(kLink), std::string::npos);
  trainer.state().log_history.push_back({{"step", 3}, {"loss", 1.5}});
  EXPECT_NE(card_of(trainer, box).text.find(kLink), std::string::npos);
}

}  // namespace
}  // namespace gradus::testing
