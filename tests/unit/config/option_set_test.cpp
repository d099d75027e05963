#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace gradus {
namespace {

using Words = std::vector<std::string>;

// A second struct on the same command line, as tasks have one.
struct DataArguments {
  std::optional<std::string> train_file = std::nullopt;
  int64_t block_size = 1024;
  std::optional<std::vector<double>> weights = std::nullopt;
};
constexpr OptionRow<DataArguments> kDataRows[] = {
    {&DataArguments::train_file, "train_file", Group::data, any_value(), "The file to train on.",
     Origin::gradus},
    {&DataArguments::block_size, "block_size", Group::data, at_least(1), "Tokens per example.",
     Origin::gradus},
    {&DataArguments::weights, "weights", Group::data, at_least(0), "One for each file.",
     Origin::gradus},
};

struct Parsed {
  TrainingArguments args;
  DataArguments data;
  OptionSet::Line line;
};

Parsed parse(const Words& words) {
  Parsed parsed;
  OptionSet options;
  options.add(parsed.args, training_options());
  options.add(parsed.data, std::span<const OptionRow<DataArguments>>(kDataRows));
  parsed.line = options.parse(words);
  return parsed;
}

// The error as "id: message | advice".
std::string parse_failure(const Words& words) {
  try {
    parse(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.id() + ": " + error.message() + " | " + error.advice();
  }
  return "no error";
}

class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("gradus-config-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  // the message of the failure, with the folder cut out
  std::string failing(const std::string& name, const std::string& text) {
    auto message = parse_failure({write(name, text)});
    const auto folder = folder_.string() + "/";
    for (size_t at; (at = message.find(folder)) != std::string::npos;)
      message.erase(at, folder.size());
    return message;
  }
  std::filesystem::path folder_;
};

TEST(OptionSet, TakesEverySpelling) {
  const auto args =
      parse({"--learning_rate", "1e-4", "--max-steps=7", "--logging_steps", "0.25", "--bf16",
             "--logging_nan_inf_filter", "false", "--no_remove_unused_columns", "--label_names",
             "start", "end", "--report_to", "tensorboard", "--tf32", "no", "--seed", "+3"})
          .args;
  EXPECT_EQ(args.learning_rate, 1e-4);
  EXPECT_EQ(args.max_steps, 7);
  EXPECT_EQ(args.logging_steps, 0.25);
  EXPECT_TRUE(args.bf16);
  EXPECT_FALSE(args.logging_nan_inf_filter);
  EXPECT_FALSE(args.remove_unused_columns);
  EXPECT_EQ(args.label_names, (Words{"start", "end"}));
  EXPECT_EQ(args.report_to, StringOrList("tensorboard"));
  EXPECT_EQ(args.tf32, false);
  EXPECT_EQ(args.seed, 3);
}

TEST(OptionSet, FillsSeveralStructsFromOneLine) {
  const auto parsed = parse({"--train_file", "a.txt", "--max_steps", "-1", "--block-size", "64"});
  EXPECT_EQ(parsed.data.train_file, "a.txt");
  EXPECT_EQ(parsed.data.block_size, 64);
  EXPECT_EQ(parsed.args.max_steps, -1);
}

TEST(OptionSet, LastFlagWins) {
  EXPECT_EQ(parse({"--seed", "1", "--seed", "2"}).args.seed, 2);
  EXPECT_FALSE(parse({"--fp16", "--no_fp16"}).args.fp16);
}

TEST(OptionSet, DictionariesAreJsonWithTextTurnedIntoWhatItLooksLike) {
  const auto kwargs =
      parse({"--lr_scheduler_kwargs",
             R"({"a": "true", "b": "12", "c": "0.5", "d": "-1", "e": {"f": "7"}, "g": 1e-5})"})
          .args.lr_scheduler_kwargs;
  EXPECT_EQ(kwargs, nlohmann::json::parse(
                        R"({"a": true, "b": 12, "c": 0.5, "d": "-1", "e": {"f": 7}, "g": 1e-5})"));
}

TEST(OptionSet, BooleansStandForWords) {
  EXPECT_EQ(parse({"--include_num_input_tokens_seen", "true"}).args.include_num_input_tokens_seen,
            "all");
  EXPECT_EQ(parse({"--include_num_input_tokens_seen"}).args.include_num_input_tokens_seen, "all");
  EXPECT_EQ(
      parse({"--include_num_input_tokens_seen", "non_padding"}).args.include_num_input_tokens_seen,
      "non_padding");
  EXPECT_EQ(parse({"--resume_from_checkpoint", "true"}).args.resume_from_checkpoint, "true");
  EXPECT_EQ(parse({"--resume_from_checkpoint", "last"}).args.resume_from_checkpoint, "last");
  EXPECT_EQ(parse({"--resume_from_checkpoint", "runs/a/checkpoint-5"}).args.resume_from_checkpoint,
            "runs/a/checkpoint-5");
  EXPECT_EQ(parse({"--resume_from_checkpoint", "false"}).args.resume_from_checkpoint, std::nullopt);
}

TEST(OptionSet, NoneUnsetsNumbers) {
  EXPECT_EQ(parse({"--save_total_limit", "3", "--save_total_limit", "none"}).args.save_total_limit,
            std::nullopt);
}

TEST(OptionSet, ListsOfNumbers) {
  EXPECT_EQ(parse({"--weights", "0.5", "2", "--block_size", "4"}).data.weights,
            (std::vector<double>{0.5, 2}));
  EXPECT_EQ(parse({"--weights", "none"}).data.weights, std::nullopt);
  EXPECT_EQ(parse_failure({"--weights", "0.5", "much"}),
            "G-CONF-2: --weights: expected a list of numbers, received \"much\" | One for each "
            "file.");
}

TEST(OptionSet, HelpIsSeenAnywhereAndParsesNothing) {
  EXPECT_TRUE(parse({"--no_such_flag", "--help"}).line.help);
  EXPECT_TRUE(parse({"-h"}).line.help);
  EXPECT_FALSE(parse({"--seed", "1"}).line.help);
}

TEST(OptionSet, UnknownFlagNamesTheNearest) {
  EXPECT_EQ(parse_failure({"--learning_rat", "1"}),
            "G-CONF-1: unknown option --learning_rat | Did you mean learning_rate? --help lists "
            "every option.");
  EXPECT_EQ(parse_failure({"--zzzzzz"}),
            "G-CONF-1: unknown option --zzzzzz | --help lists every option.");
  EXPECT_NE(parse_failure({"--no_bf61"}).find("Did you mean bf16"), std::string::npos);
  EXPECT_TRUE(parse_failure({"-x"}).starts_with("G-CONF-1: unknown option -x |"));
}

TEST(OptionSet, WrongTypeNamesOptionExpectedAndReceived) {
  EXPECT_EQ(
      parse_failure({"--learning_rate", "fast"}),
      "G-CONF-2: --learning_rate: expected a number, received \"fast\" | The highest learning "
      "rate of the schedule.");
  EXPECT_TRUE(
      parse_failure({"--max_steps", "1.5"})
          .starts_with("G-CONF-2: --max_steps: expected an integer, received \"1.5\" | Num"));
  EXPECT_TRUE(parse_failure({"--seed", "99999999999999999999"})
                  .starts_with("G-CONF-2: --seed: expected an integer, received \"999999999"));
  EXPECT_TRUE(parse_failure({"--bf16", "maybe"})
                  .starts_with("G-CONF-2: --bf16: expected true or false, received \"maybe\" |"));
  EXPECT_TRUE(parse_failure({"--seed"})
                  .starts_with("G-CONF-2: --seed: expected an integer, received noth"));
  EXPECT_TRUE(parse_failure({"--seed", "--bf16"})
                  .starts_with("G-CONF-2: --seed: expected an integer, received noth"));
  EXPECT_TRUE(
      parse_failure({"--label_names"})
          .starts_with("G-CONF-2: --label_names: expected a list of words, received nothin"));
  EXPECT_NE(parse_failure({"--lr_scheduler_kwargs", "{\"a\": }"})
                .find("--lr_scheduler_kwargs: the dictionary is not valid JSON"),
            std::string::npos);
  EXPECT_NE(parse_failure({"--lr_scheduler_kwargs", "fast"})
                .find("expected a dictionary such as {\"key\": 1}, received \"fast\""),
            std::string::npos);
}

TEST(OptionSet, OutOfRangeNamesTheBound) {
  EXPECT_EQ(parse_failure({"--per_device_train_batch_size", "0"}),
            "G-CONF-3: --per_device_train_batch_size: must be at least 1, received 0 | Examples "
            "per device in one forward and backward pass.");
  EXPECT_NE(
      parse_failure({"--adam_beta1", "1"}).find("must be at least 0 and below 1, received 1.0"),
      std::string::npos);
  EXPECT_NE(parse_failure({"--label_smoothing_factor=1.5"})
                .find("must be at least 0 and at most 1, received 1.5"),
            std::string::npos);
  EXPECT_NE(parse_failure({"--warmup_steps", "-1"})
                .find("--warmup_steps: must be at least 0, received -1"),
            std::string::npos);
  EXPECT_NE(parse_failure({"--learning_rate", "nan"}).find("must be at least 0, received NaN"),
            std::string::npos);
  EXPECT_NE(parse_failure({"--lr_scheduler_type", "cosin"})
                .find("received \"cosin\" | Did you mean cosine"),
            std::string::npos);
  EXPECT_NE(parse_failure({"--include_for_metrics", "inputs", "losses"})
                .find("must be one of inputs or loss, received \"losses\""),
            std::string::npos);
}

TEST(OptionSet, MalformedLines) {
  EXPECT_EQ(parse_failure({"learning_rate=1"}),
            "G-CONF-7: unexpected word \"learning_rate=1\" | Options begin with two dashes: "
            "--learning_rate=1");
  EXPECT_NE(parse_failure({"train"}).find(
                "G-CONF-7: unexpected word \"train\" | A config file ends in .yaml"),
            std::string::npos);
  EXPECT_NE(parse_failure({"--no_bf16=true"})
                .find("G-CONF-7: --no_bf16 takes no value | Use --bf16 true or --bf16 false."),
            std::string::npos);
  EXPECT_NE(parse_failure({"--no_seed"})
                .find("G-CONF-7: --no_seed negates --seed, which is not a switch but takes int"),
            std::string::npos);
}

TEST(OptionSet, TwoOptionsOfOneNameAreABug) {
  DataArguments one, two;
  OptionSet options;
  options.add(one, std::span<const OptionRow<DataArguments>>(kDataRows));
  EXPECT_THROW(options.add(two, std::span<const OptionRow<DataArguments>>(kDataRows)), Error);
}

TEST_F(ConfigFile, YamlFillsAndFlagsWin) {
  const auto file =
      write("run.yaml",
            "# a run\noutput_dir: ~/runs\nlearning-rate: 5e-5\nmax_steps: 1_000\nsave_strategy: "
            "no\nrun_name: 7\nbf16: yes\nreport_to: [tensorboard, jsonl]\n"
            "lr_scheduler_kwargs:\n  num_cycles: 2\n  min_lr: 1.0e-6\n  name: 'on'\neval_steps: "
            "0.1\nsave_total_limit: null\nseed: 5\n"
            "include_num_input_tokens_seen: no\n");
  const auto parsed = parse({"--seed", "6", file, "--block_size", "8"});
  const auto& args = parsed.args;
  EXPECT_EQ(parsed.line.file, file);
  EXPECT_EQ(args.output_dir, "~/runs");
  EXPECT_EQ(args.learning_rate, 5e-5);
  EXPECT_EQ(args.max_steps, 1000);
  EXPECT_EQ(args.save_strategy, "no");
  EXPECT_EQ(args.run_name, "7");
  EXPECT_TRUE(args.bf16);
  EXPECT_EQ(args.report_to, (StringOrList{"tensorboard", "jsonl"}));
  EXPECT_EQ(args.lr_scheduler_kwargs,
            nlohmann::json::parse(R"({"num_cycles": 2, "min_lr": 1e-6, "name": "on"})"));
  EXPECT_EQ(args.eval_steps, StepsOrRatio(0.1));
  EXPECT_EQ(args.save_total_limit, std::nullopt);
  EXPECT_EQ(args.include_num_input_tokens_seen, "no");
  EXPECT_EQ(args.seed, 6) << "the flag wins, wherever the file stands";
  EXPECT_EQ(parsed.data.block_size, 8);
}

TEST_F(ConfigFile, JsonFillsToo) {
  const auto args =
      parse({write("run.json",
                   R"({"learning_rate": 1, "report_to": "none", "resume_from_checkpoint": true,
                  "deepspeed": null, "hub_token": "<HUB_TOKEN>",
                  "include_num_input_tokens_seen": true, "trackio_static_space_id": false,
                  "train_file": "b.txt"})")})
          .args;
  EXPECT_EQ(args.learning_rate, 1.0);
  EXPECT_EQ(args.resume_from_checkpoint, "true");
  EXPECT_EQ(args.include_num_input_tokens_seen, "all");
  EXPECT_EQ(args.hub_token, std::nullopt) << "the placeholder of to_dict is no token";
}

TEST_F(ConfigFile, ATokenInAngleBracketsIsNoPlaceholder) {
  EXPECT_EQ(parse({write("run.yaml", "hub_token: <|im_end|>\n")}).args.hub_token, "<|im_end|>");
  EXPECT_EQ(parse({write("run.json", R"({"hub_token": "</s>"})")}).args.hub_token, "</s>");
}

TEST_F(ConfigFile, OneValueIsAListOfOne) {
  const auto yaml = parse({write("run.yaml", "label_names: all-linear\nweights: 2\n")});
  EXPECT_EQ(yaml.args.label_names, Words{"all-linear"});
  EXPECT_EQ(yaml.data.weights, std::vector<double>{2});
  EXPECT_EQ(parse({write("run.json", R"({"label_names": "a"})")}).args.label_names, Words{"a"});
  EXPECT_EQ(parse({write("none.yaml", "label_names: none\n")}).args.label_names, std::nullopt);
}

TEST_F(ConfigFile, SetsEnvironmentVariables) {
  const auto file = write("run.yaml", "env:\n  GRADUS_TEST_ENV: a word\nseed: 3\n");
  EXPECT_EQ(parse({file}).args.seed, 3);
  EXPECT_STREQ(::getenv("GRADUS_TEST_ENV"), "a word");
  parse({write("run.json", R"({"env": {"GRADUS_TEST_ENV": 7}})")});
  EXPECT_STREQ(::getenv("GRADUS_TEST_ENV"), "7");
  parse({write("run.json", R"({"env": {"GRADUS_TEST_ENV": true}})")});
  EXPECT_STREQ(::getenv("GRADUS_TEST_ENV"), "True");  // as os.environ gets it from trl
  EXPECT_NE(failing("b.yaml", "env:\n  A=B: 5\n").find("env: 'A=B' cannot be the name"),
            std::string::npos);
  EXPECT_NE(failing("a.yaml", "env: 5\n").find("a.yaml line 1: env must be a dictionary"),
            std::string::npos);
}

TEST_F(ConfigFile, MayBeGivenAsAFlag) {
  const auto file = write("run.yaml", "learning_rate: 2e-5\n");
  EXPECT_EQ(parse({"--max_steps", "3", "--config", file}).args.learning_rate, 2e-5);
  EXPECT_EQ(parse({"--config=" + file, "--learning_rate", "1"}).args.learning_rate, 1);
  EXPECT_NE(parse_failure({"--config"})
                .find("G-CONF-7: unexpected word \"\" | A config file ends in .yaml"),
            std::string::npos);
  EXPECT_NE(parse_failure({"--config", file, file}).find("there is already a config file"),
            std::string::npos);
}

TEST_F(ConfigFile, EmptyFileChangesNothing) {
  EXPECT_EQ(parse({write("run.yaml", "# nothing\n")}).args, TrainingArguments());
}

TEST_F(ConfigFile, ErrorsNameFileAndLine) {
  EXPECT_EQ(failing("a.yaml", "seed: 1\nlerning_rate: 1\n"),
            "G-CONF-1: a.yaml line 2: unknown option lerning_rate | Did you mean learning_rate? "
            "--help lists every option.");
  EXPECT_TRUE(failing("a.json", "{\"seed\": 1,\n \"bf61\": true}")
                  .starts_with("G-CONF-1: a.json line 2: unknown option bf"));
  EXPECT_TRUE(
      failing("a.yaml", "seed: many\n")
          .starts_with(
              "G-CONF-2: a.yaml line 1: seed: expected an integer, received \"many\" | Seed"));
  EXPECT_TRUE(failing("a.json", "{\n\"bf16\": \"yes\"}")
                  .starts_with(
                      "G-CONF-2: a.json line 2: bf16: expected true or false, received \"yes\" |"));
  EXPECT_TRUE(
      failing("a.json", "{\"max_steps\": 10.0}")
          .starts_with("G-CONF-2: a.json line 1: max_steps: expected an integer, received 10.0"));
  EXPECT_TRUE(failing("a.yaml", "\nadam_beta1: 2\n")
                  .starts_with("G-CONF-3: a.yaml line 2: adam_beta1: must be at least 0 and "));
  EXPECT_EQ(failing("a.yaml", "seed: 1\nseed: 2\n"),
            "G-CONF-6: a.yaml line 2: seed appears twice | Keep one of the two.");
}

TEST_F(ConfigFile, UnusableFiles) {
  EXPECT_TRUE(failing("a.yaml", "seed: [1\n")
                  .starts_with("G-CONF-6: config file: a.yaml is not valid YAML at line 2"));
  EXPECT_TRUE(failing("a.json", "{\"seed\": 1")
                  .starts_with("G-CONF-6: config file: a.json is not valid JSON at"));
  EXPECT_NE(failing("a.json", "[1]")
                .find("a.json holds array, expected an object with one option per key"),
            std::string::npos);
  EXPECT_NE(failing("a.yaml", "- 1\n").find("a.yaml holds array, expected an object"),
            std::string::npos);
  EXPECT_NE(
      failing("a.yaml", "seed: 1\n---\nseed: 2\n").find("holds 2 YAML documents, expected one"),
      std::string::npos);
  EXPECT_NE(
      failing("a.yaml", "? [a]\n: 1\n").find("expected the name of an option before the colon"),
      std::string::npos);
  EXPECT_NE(failing("a.yaml", "lr_scheduler_kwargs: &a\n  k: *a\n")
                .find("a.yaml line 1: lr_scheduler_kwargs: the value is too large"),
            std::string::npos);
  EXPECT_NE(failing("a.yaml", "lr_scheduler_kwargs: {[a]: 1}\n")
                .find("expected a word before the colon inside a dictionary"),
            std::string::npos);
  std::string nested(100000, '[');
  nested.insert(0, "{\"lr_scheduler_kwargs\": ").append("}");
  EXPECT_NE(failing("a.json", nested).find("nested deeper than"), std::string::npos);
  const auto missing = parse_failure({(folder_ / "none.yaml").string()});
  EXPECT_NE(missing.find("G-CONF-6: config file: "), std::string::npos) << missing;
  EXPECT_NE(missing.find("No such file"), std::string::npos) << missing;
  EXPECT_NE(parse_failure({write("x.yaml", ""), write("y.yaml", "")})
                .find("there is already a config file"),
            std::string::npos);
}

TEST(OptionSet, KnowsWhatWasSet) {
  TrainingArguments args;
  OptionSet options;
  options.add(args, training_options());
  options.parse(Words{"--seed", "42"});
  EXPECT_TRUE(options.was_set("seed"));
  EXPECT_FALSE(options.was_set("max_steps"));
}

TEST(OptionText, HelpIsGroupedAndFits) {
  const auto text = options_text();
  EXPECT_NE(text.find("Learning rate and schedule:\n  --learning_rate NUMBER"), std::string::npos)
      << text.substr(0, 2000);
  EXPECT_NE(text.find("(default: 5e-05)"), std::string::npos);
  size_t start = 0;
  while (start < text.size()) {
    const auto end = std::min(text.find('\n', start), text.size());
    EXPECT_LE(end - start, 100u) << text.substr(start, end - start);
    start = end + 1;
  }
}

TEST(OptionText, HelpShowsTheDefaultsOfTheProgram) {
  TrainingArguments args{.max_steps = 40};
  OptionSet options;
  options.add(args, training_options());
  std::string help;  // the words of the page, wherever its lines end
  for (const char c : options.help())
    if (c != ' ' && c != '\n') help += c;
  EXPECT_NE(help.find("(default:40)"), std::string::npos);
}

TEST(OptionText, JsonListHasEveryKey) {
  const auto list = nlohmann::json::parse(options_json());
  ASSERT_EQ(list.size(), training_options().size());
  const auto& rate = list[4];
  EXPECT_EQ(rate["name"], "learning_rate");
  EXPECT_EQ(rate["type"], "float");
  EXPECT_EQ(rate["default"], 5e-5);
  EXPECT_EQ(rate["choices"], nullptr);
  EXPECT_EQ(rate["group"], "Learning rate and schedule");
  EXPECT_EQ(rate["origin"], "hf");
  EXPECT_GE(list[5]["choices"].size(), 12u) << "other tests may add some";
  EXPECT_EQ(list.back()["origin"], "gradus");
}

}  // namespace
}  // namespace gradus
