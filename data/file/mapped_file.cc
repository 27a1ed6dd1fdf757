#include "data/file/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "common/core/mutex.h"

namespace cairn::data {
namespace {

absl::StatusOr<absl::Span<const uint8_t>> Map(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError("is not a regular file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return absl::Span<const uint8_t>();
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot be mapped");
  return absl::MakeConstSpan(static_cast<const uint8_t*>(address), size);
}

// The mapped files, for the SIGBUS handler. A signal handler takes no arguments, so the list is global.
// Entries are reused and never freed. The handler reads them without a lock: it needs only the mapping that
// its own thread was reading, which still exists.
struct Mapping {
  std::atomic<const uint8_t*> begin = nullptr;  // null: the entry is free
  size_t size = 0;
  std::string path{};
  Mapping* next = nullptr;
};
std::atomic<Mapping*> mappings = nullptr;
Mutex mappings_mutex;  // held by every writer

void Register(absl::Span<const uint8_t> bytes, const std::string& path) {
  if (bytes.empty()) return;
  MutexLock lock(mappings_mutex);
  Mapping* entry = mappings.load();
  while (entry != nullptr && entry->begin.load() != nullptr) entry = entry->next;
  if (entry == nullptr) {
    entry = new Mapping{.next = mappings.load()};
    mappings.store(entry);
  }
  entry->size = bytes.size();
  entry->path = path;
  entry->begin.store(bytes.data());
}

void Unregister(absl::Span<const uint8_t> bytes) {
  MutexLock lock(mappings_mutex);
  for (Mapping* entry = mappings.load(); entry != nullptr; entry = entry->next) {
    if (entry->begin.load() == bytes.data()) entry->begin.store(nullptr);
  }
}

void Say(const char* text, size_t size) {
  if (write(STDERR_FILENO, text, size) < 0) return;  // stderr is closed
}

// Calls only async-signal-safe functions (signal-safety(7)).
void OnBusError(int signal, siginfo_t* info, void*) {
  const auto* address = static_cast<const uint8_t*>(info->si_addr);
  for (const Mapping* entry = mappings.load(); entry != nullptr; entry = entry->next) {
    const uint8_t* begin = entry->begin.load();
    if (begin == nullptr || address < begin || address >= begin + entry->size) continue;
    constexpr char kBefore[] = "error: ", kAfter[] = ": was cut short while it was in use\n";
    Say(kBefore, sizeof(kBefore) - 1);
    Say(entry->path.data(), entry->path.size());
    Say(kAfter, sizeof(kAfter) - 1);
    _exit(1);
  }
  // The signal has another cause. Restore the default action, which ends the process when the instruction is
  // retried.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
}

}  // namespace

void ExplainTruncatedFiles() {
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

absl::Status CheckRegularFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, "cannot be opened");
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("is not a regular file");
  return absl::OkStatus();
}

MappedFile::MappedFile(absl::Span<const uint8_t> bytes, const std::string& path) : bytes_(bytes) {
  Register(bytes, path);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: do not block on a FIFO
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot be opened");
  const auto bytes = Map(fd);
  close(fd);  // the mapping stays valid
  if (!bytes.ok()) return bytes.status();
  return std::shared_ptr<const MappedFile>(new MappedFile(*bytes, path));
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  Unregister(bytes_);
  munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace cairn::data
