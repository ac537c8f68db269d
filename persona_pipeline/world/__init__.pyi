"""The public names of the world and where each stands."""

from .models import CorrectionSettings as CorrectionSettings
from .models import Entry as Entry
from .models import Message as Message
from .models import Omission as Omission
from .models import Persona as Persona
from .models import Trajectory as Trajectory
from .models import Window as Window
from .models import parse_window as parse_window
from .models import window_indices as window_indices
from .models import windowed as windowed
from .world import SyncResult as SyncResult
from .world import World as World
