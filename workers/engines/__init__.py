"""The engines that come with the project, one a file. Each fulfils `workers.engine.Engine`."""
