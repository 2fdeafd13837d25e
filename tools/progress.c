/* The progress line: a thread redraws it, so that a single long call is seen to be alive. */
#include "progress.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "timing.h"

static struct {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  int running, stop, drawn;
  double started;
  char what[96];
  long step, total;
} line = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void erase(void) {
  if (line.drawn) fputs("\r\033[K", stderr), fflush(stderr);
  line.drawn = 0;
}

static void draw(void) {
  double elapsed = timing_now() - line.started;
  if (elapsed < 1) return;
  erase();
  if (line.total > 0) fprintf(stderr, "[%ld/%ld] ", line.step, line.total);
  fprintf(stderr, "%s  %.0f s", line.what, elapsed);
  fflush(stderr);
  line.drawn = 1;
}

static void *tick(void *unused) {
  (void)unused;
  pthread_mutex_lock(&line.lock);
  while (!line.stop) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 250000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&line.ended, &line.lock, &until);
    if (!line.stop) draw();
  }
  pthread_mutex_unlock(&line.lock);
  return NULL;
}

void progress_start(void) {
  if (line.running || !isatty(STDERR_FILENO)) return;
  line.started = timing_now();
  line.stop = 0;
  line.running = pthread_create(&line.thread, NULL, tick, NULL) == 0;
}

void progress_say(const char *what, long step, long total) {
  pthread_mutex_lock(&line.lock);
  snprintf(line.what, sizeof line.what, "%s", what);
  line.step = step, line.total = total;
  pthread_mutex_unlock(&line.lock);
}

void progress_erase(void) {
  pthread_mutex_lock(&line.lock);
  erase();
  pthread_mutex_unlock(&line.lock);
}

void progress_stop(void) {
  if (!line.running) return;
  pthread_mutex_lock(&line.lock);
  line.stop = 1;
  pthread_cond_signal(&line.ended);
  pthread_mutex_unlock(&line.lock);
  pthread_join(line.thread, NULL);
  line.running = 0;
  erase();
}
