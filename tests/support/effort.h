// The amount of work of tests that have no natural end.
#pragma once

namespace cairn::test {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAIRN_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAIRN_SANITIZED 1
#endif

// Returns `normal`, or `sanitized` under a sanitizer, which takes ten times as long and finds faults in fewer
// tries.
#if defined(CAIRN_SANITIZED)
constexpr int Effort(int /*normal*/, int sanitized) {
  return sanitized;
}
#else
constexpr int Effort(int normal, int /*sanitized*/) {
  return normal;
}
#endif

// A sanitizer ends the process when an allocation fails or is too large.
#if defined(CAIRN_SANITIZED)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace cairn::test
