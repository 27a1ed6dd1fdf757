// How much a test does that could go on for ever.
#pragma once

namespace cairn::test {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAIRN_SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAIRN_SANITIZED 1
#endif

// `normal`, or, under a sanitizer, where everything takes ten times as long, `sanitized`: what is looked for
// there shows in fewer tries.
#if defined(CAIRN_SANITIZED)
constexpr int Effort(int /*normal*/, int sanitized) {
  return sanitized;
}
#else
constexpr int Effort(int normal, int /*sanitized*/) {
  return normal;
}
#endif

// A sanitizer ends the process itself when it gets no memory, or is asked for more than it can give.
#if defined(CAIRN_SANITIZED)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace cairn::test
