#pragma once

#include <gradus/audio/audio.h>
#include <gradus/audio/ctc_tokenizer.h>
#include <gradus/audio/feature_extractor.h>
#include <gradus/data/dataset.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// Which rows of sound are opened.
struct AudioFolderOptions {
  std::string split = {};              ///< A subfolder or split; empty: the folder itself.
  std::string audio_column = "audio";  ///< Name of the column with the sound.
  int64_t skip_bad_rows = 0;           ///< CSV and JSON rows that may be left out.
};

/// Opens rows of sound without decoding them.
///
/// `path` is a CSV, JSONL, Parquet or Arrow file whose audio column holds paths or the Audio
/// feature of the `datasets` package, or a folder: with such files, or with sound files. A folder
/// of sound files is read as `datasets` reads an audio folder: metadata.csv, metadata.jsonl or
/// metadata.parquet names them in `file_name` and has the other columns; without it the rows are
/// the sound files in order of their names, and files in subfolders have the subfolder as `label`.
/// Relative paths start at the file that names them. Throws `Error` G-AUDIO-9 for a folder without
/// sound, and as `load_dataset`.
std::shared_ptr<const Dataset> open_audio_rows(const std::filesystem::path& path,
                                               const AudioFolderOptions& options = {});

/// How `decode_rows` works.
struct AudioDecodeOptions {
  std::string audio_column = "audio";  ///< Holds the sound.
  int64_t sampling_rate = 16000;       ///< What clips are brought to.
  int64_t skip_bad_rows = 0;  ///< Rows that may be left out because they cannot be decoded.
  int64_t threads = 0;        ///< Threads that decode; 0: one per core, at most 8.
  /// Decoded sound up to this size stays in memory; beyond it, rows are decoded whenever they are
  /// read, by the loader's threads.
  int64_t memory_limit = int64_t{2} << 30;
};

/// Rows with decoded sound: the audio column holds a tensor of samples.
struct DecodedRows : Dataset {
  /// Samples of a row.
  virtual int64_t length(int64_t index) const = 0;
  /// Rows that were left out.
  virtual int64_t skipped_rows() const = 0;
};

/// Decodes all rows once, with several threads, so that bad ones are known before training.
///
/// A row that cannot be decoded is left out with a warning that names it, up to `skip_bad_rows`;
/// one more throws the error of that row.
std::shared_ptr<DecodedRows> decode_rows(std::shared_ptr<const Dataset> rows,
                                         const AudioDecodeOptions& options = {});

/// Feature extractor and tokenizer together, as transformers' `Wav2Vec2Processor`: what the Trainer
/// saves beside the weights.
class Wav2Vec2Processor : public CTCTokenizer {
 public:
  /// Keeps copies of both.
  Wav2Vec2Processor(Wav2Vec2FeatureExtractor extractor, const CTCTokenizer& tokenizer)
      : CTCTokenizer(tokenizer), extractor_(extractor) {}
  /// What prepares the sound.
  const Wav2Vec2FeatureExtractor& feature_extractor() const { return extractor_; }
  void save_pretrained(const std::filesystem::path& directory) const override;

 private:
  Wav2Vec2FeatureExtractor extractor_;
};

/// Options of `DataCollatorCTCWithPadding`.
struct DataCollatorCTCOptions {
  Wav2Vec2FeatureExtractor feature_extractor = {};                  ///< Says how sound is padded.
  std::optional<int64_t> pad_to_multiple_of = std::nullopt;         ///< Of samples.
  std::optional<int64_t> pad_to_multiple_of_labels = std::nullopt;  ///< Of labels.
};

/// Pads `input_values` and `labels` separately, as the class of that name in transformers' script
/// does. Labels are padded with -100. Several threads may call it at once.
class DataCollatorCTCWithPadding {
 public:
  /// Keeps the options.
  explicit DataCollatorCTCWithPadding(DataCollatorCTCOptions options) : options_(options) {}
  /// The batch of these rows. Throws `Error` G-DATA-1 when a column is missing.
  Batch operator()(std::vector<Example> rows) const;

 private:
  DataCollatorCTCOptions options_;
};

}  // namespace gradus
