# my_policy.py
import dataclasses
from sgdlab import policies


@policies.register(title="Pairs of workers", rule="nag_asgd")
@dataclasses.dataclass
class pairs(policies.Base):
    """Every update averages gradients of several different workers, of any age.

    Attributes:
      size: number of workers whose gradients an update has.
    """

    size: int = 2
    came: set[int] = dataclasses.field(default_factory=set, init=False)

    def arrival(self, now, worker, version, seconds):
        if worker in self.came:  # one gradient of each is enough
            return [policies.Drop(worker), *self.begin([worker])]
        self.came.add(worker)
        actions = [policies.Take(worker, self.version)]  # into the open update
        if len(self.came) == self.size:
            self.came = set()
            actions.append(self.close())  # the update is made: there is a new version
        return actions + self.begin([worker])
