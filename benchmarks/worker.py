"""The other end of `peers`: answers requests on standard input, in any environment."""

import json
import sys
import time


def serve(jobs):
    """`jobs` maps a name to a function of the setting that returns (work(count), value())."""
    made = {}
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        do, count = request.pop("do"), request.pop("count", 1)
        key = json.dumps(request, sort_keys=True)
        if key not in made:
            made[key] = jobs[request.pop("job")](**request)
        work, value = made[key]
        print(json.dumps(timed(work, count) if do == "seconds" else value()), file=answers, flush=True)


def timed(work, count):
    """Seconds of `count` units of work; what `work.before` does for a new count is not timed."""
    getattr(work, "before", lambda count: None)(count)
    began = time.perf_counter()
    work(count)
    return time.perf_counter() - began
