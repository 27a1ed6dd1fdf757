// Finds the TFRecord files of a training and a validation set in a directory, and reads their bytes.
//
// Names: "train" for the training set and "test", "validation", "valid" or "val" for the validation set,
// followed by ".tfrecord" or ".tfrecords", optionally ".gz". A set may consist of numbered pieces
// (train-00000-of-00004.tfrecord, train.tfrecord-00000-of-00004), also without a suffix, as TF-slim writes
// them (train-00000-of-00004). The name of a data set may come first, as TensorFlow Datasets and TF-slim
// write it (mnist-train.tfrecord-00000-of-00001, flowers_train_00000-of-00005.tfrecord).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/array.h"
#include "data/file_sets.h"

namespace cairn::data {

// Finds the training and the validation set at `path`, a file or a directory. INVALID_ARGUMENT if the
// training files belong to several data sets. Other errors, and the remarks, are those of FindSets() and
// CheckPieces().
absl::StatusOr<SetFiles> FindTfRecordFiles(const std::string& path);

// Whether `path` is a file that has the name of a TFRecord file.
bool IsTfRecordFile(const std::string& path);

// The bytes of a file: mapped, or decompressed if it is gzip or zlib data. Errors name the file.
absl::StatusOr<SharedBytes> ReadTfRecordFile(const std::string& path);

}  // namespace cairn::data
