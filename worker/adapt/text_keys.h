// Numbers texts in the order in which they come, so that a reader of data, which makes numbers of the texts of an
// input, keeps them all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/ids/id_map.h"
#include "common/ids/text_ids.h"

namespace cairn::worker {

// Any thread may number texts.
class TextKeys final : public IdMap {
 public:
  // `division`: how a text is divided into those that are numbered; nullopt: it is not.
  TextKeys(std::string layer, std::optional<TextDivision> division);

  bool Takes(ValueKind kind) const override { return kind == ValueKind::kText; }
  std::optional<int64_t> OfText(absl::string_view value) const override;
  std::optional<int64_t> ids_per_text() const override;
  void AppendIds(absl::string_view text, std::vector<int64_t>& ids) const override;
  absl::StatusOr<IdTable> AsTable() const override;
  std::string Describe() const override;

  // [number] The texts. Not while texts are numbered.
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  const std::optional<TextDivision> division_;
  mutable absl::Mutex mutex_;
  mutable absl::flat_hash_map<std::string, int64_t> key_of_ ABSL_GUARDED_BY(mutex_);
  mutable std::vector<std::string> texts_;  // written with mutex_ held
};

}  // namespace cairn::worker
