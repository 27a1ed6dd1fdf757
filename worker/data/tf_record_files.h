// Finds the TFRecord files of a training and a validation set in a directory, and reads their bytes.
//
// Names: train and test, validation, valid or val, with ".tfrecord" or ".tfrecords" behind them, perhaps
// ".gz", and pieces (train-00000-of-00004.tfrecord, train.tfrecord-00000-of-00004); as TF-slim writes them,
// pieces without any suffix (train-00000-of-00004); and the name of a data set before them, as TensorFlow
// Datasets and TF-slim write it (mnist-train.tfrecord-00000-of-00001, flowers_train_00000-of-00005.tfrecord).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/array.h"
#include "worker/data/file_sets.h"

namespace cairn::data {

// The sets of `path`, a file or a directory. INVALID_ARGUMENT where the training files belong to several data
// sets; errors and remarks about pieces as FindSets() and CheckPieces() give them.
absl::StatusOr<SetFiles> FindTfRecordFiles(const std::string& path);

// Whether `path` is a file with such a name.
bool IsTfRecordFile(const std::string& path);

// The bytes of a file: mapped, or unpacked if gzip or zlib has packed it. Errors name the file.
absl::StatusOr<SharedBytes> ReadTfRecordFile(const std::string& path);

}  // namespace cairn::data
